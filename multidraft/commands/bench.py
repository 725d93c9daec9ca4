"""``bench``: compare policies on suites of prompts."""

from __future__ import annotations

import argparse
import json
import random
import sys
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

import multidraft as md
from drafters.errors import error_message
from drafters.files import replacing
from drafters.hardware import set_aside
from drafters.pool import Pool
from multidraft.bench.batches import BatchFigures, measure_batches, render_batches, summary_of_batches
from multidraft.bench.engines import Peer, missing_packages, peers_for
from multidraft.bench.peers import PeerRun, beside_peers, render_peers, summary_of_peers
from multidraft.bench.report import Asked, make_report
from multidraft.bench.runner import Entry, SuiteRun
from multidraft.bench.suites import load_suite, suite_names
from multidraft.bench.table import notes, render_curve, render_table, too_long
from multidraft.bench.vllm_peer import vllm_peers
from multidraft.commands import options as shared
from multidraft.engine.experience import new_traffic
from multidraft.policies.specs import canonical_spec, with_start
from multidraft.policies.titles import DEFAULT_POLICY
from multidraft.replay.advice import usable
from multidraft.service.learning import learn_from
from storage.records import PLAIN
from storage.run import Origin
from storage.store import Store

MOST_TEXTS = 64
"""Largest batch."""

DEFAULT_POLICIES = f"ucb,normal-hedge,{DEFAULT_POLICY}"


def add(sub: argparse.ArgumentParser) -> None:
    shared.add_pool(sub)
    files = "a file: .jsonl or .csv with 'prompt' or 'turns' and perhaps 'task', or text"
    sub.add_argument("suites", nargs="+", metavar="SUITE", help=f"{', '.join(suite_names())}, or {files}")
    sub.add_argument(
        "--policies", default=DEFAULT_POLICIES, help=f"comma-separated, beside {PLAIN} (default: {DEFAULT_POLICIES})"
    )
    sub.add_argument(
        "--start",
        choices=("cold", "router", "traffic", "both"),
        help="the start of every policy that has one; both: cold and router (with --stream: cold and traffic); "
        "default: each policy's own",
    )
    sub.add_argument(
        "--stream",
        action="store_true",
        help="treat the prompts as traffic, those of a file in its order, of a bundled suite shuffled by --seed: "
        "policies with start=traffic begin each with what earlier ones taught; also prints the learning curve",
    )
    sub.add_argument("--limit", type=int, help="at most this many prompts of each suite, evenly spread over it")
    sub.add_argument("--repeat", type=int, default=1, help="runs per prompt and policy (default: %(default)s)")
    sub.add_argument(
        "--peers",
        action="store_true",
        help="also decode each prompt with transformers (alone, with prompt lookup, assisted by the drafter of a "
        "policy fixed:NAME or else by the one that is best over the tasks of the pool's examples) and, where llama_cpp "
        "and gguf are installed, with llama.cpp (its weights in float32 and in float16); greedy, on the CPU",
    )
    sub.add_argument(
        "--batch-size",
        metavar="N[,N…]",
        help="measure throughput instead, prefill included, decoding this many prompts at once; no run is recorded",
    )
    sub.add_argument("--out", type=Path, help="write the report to this JSON file")
    sub.add_argument("--db", type=Path, help="also record every run in this history database")
    shared.add_decoding(sub)


def run(options: argparse.Namespace) -> int:
    """Run suites under policies, print the table and write the report; exit status 1 if a policy failed or is not
    lossless, or if something could not be written."""
    given = shared.split_specs(options.policies)
    if options.start:
        both = ("cold", "traffic" if options.stream else "router")
        starts = both if options.start == "both" else (options.start,)
        given = [with_start(spec, start) for start in starts for spec in given]
    shared.check_decoding(options, given)
    specs = tuple(dict.fromkeys(map(canonical_spec, given)))
    if options.repeat < 1:
        raise md.UserError("--repeat must be at least 1")
    if options.stream and (options.repeat > 1 or options.batch_size):
        raise md.UserError("--stream takes each prompt once, one after the other: leave out --repeat and --batch-size")
    sizes = _sizes(options)
    suites = [shared.limited(load_suite(name), options.limit) for name in options.suites]
    for name, suite in zip(options.suites, suites, strict=True):
        if options.stream and name in suite_names():  # they are sorted by task, as no traffic is
            random.Random(options.seed).shuffle(suite.items)
    left_out = [f"{suite.name}: {line}" for suite in suites for line in suite.left_out]
    for line in left_out:
        shared.warn(f"{line} (left out)")
    if options.out:
        shared.check_not_over(options.out, *map(Path, options.suites), *filter(None, [options.db]))
    with shared.written_files(options.db, options.out):
        pool = shared.load_pool(options.pool)
        if pool.router is None and any("start=router" in spec for spec in specs):
            raise md.UserError(f"pool {pool.name!r} has no router, from which policies could begin: take --start cold")
        asked = Asked(
            suite=" + ".join(suite.name for suite in suites),
            items=[item for suite in suites for item in suite.items],
            policies=specs,
            params=shared.sampling_params(options, pool.draft_length),
            begun=datetime.now(UTC),
            seed=options.seed,
            repeat=options.repeat,
            limit=options.limit,
            left_out=left_out,
        )
        if sizes:
            with set_aside():
                return _throughput(options, pool, asked, sizes)
        if options.peers and not asked.params.greedy:
            raise md.UserError("--peers compares greedy decoding: leave out --temperature")
        alone = (spec.removeprefix("fixed:") for spec in specs if spec.startswith("fixed:"))
        length = asked.params.draft_length
        peers = [*peers_for(pool, length, next(alone, None)), *vllm_peers(pool, length)] if options.peers else []
        if options.peers and (missing := missing_packages()):
            shared.warn(f"--peers runs without llama.cpp; not installed: {', '.join(missing)}")
        with set_aside():
            return _benchmark(options, pool, asked, peers)


def _sizes(options: argparse.Namespace) -> list[int]:
    """The sizes of batches asked for; none where runs are to be measured one by one."""
    if options.batch_size is None:
        return []
    if options.peers or options.db:
        raise md.UserError("--batch-size measures throughput, not runs: leave out --peers and --db")
    given = options.batch_size.split(",")
    if not all(text.strip().isdecimal() and 1 <= int(text) <= MOST_TEXTS for text in given):
        raise md.UserError(f"--batch-size takes whole numbers from 1 to {MOST_TEXTS}, such as 1,4,8")
    return sorted({int(text) for text in given})


def _throughput(options: argparse.Namespace, pool: Pool, asked: Asked, sizes: Sequence[int]) -> int:
    """Measure batches, print and write what was measured, also before an error or an interruption; exit status 1 if a
    greedy output was not the target's own."""
    runs: list[BatchFigures] = []
    stopped: BaseException | None = None
    often = {"seed": asked.seed, "repeat": asked.repeat}
    try:
        for run in measure_batches(pool, asked.items, asked.policies, asked.params, sizes, **often):
            runs.append(run)
            where = f"in a batch of {run.size}" if run.size else "alone"
            print(f"{run.policy} {where}: {run.tokens_per_second:.0f} tokens/s", file=sys.stderr)
    except (Exception, KeyboardInterrupt) as error:
        if not runs:
            raise
        stopped = error
    report = make_report(pool, asked, [], interrupted=stopped is not None)
    turns = len({PLAIN, *asked.policies}) * (1 + len(sizes)) * asked.repeat
    report["runs"] = {"planned": turns * runs[0].texts, "done": sum(run.texts for run in runs)}
    report["batches"] = summary_of_batches(runs)
    written = not options.out or _write(options.out, report)  # before whoever reads the table may have enough of it
    print(render_batches(report["batches"]))
    if stopped is not None:
        shared.warn(f"{_ending(stopped, len(runs), turns)}. {_left(options, runs, written)}")
        return 130 if isinstance(stopped, KeyboardInterrupt) else 1
    same = not asked.params.greedy or all(run.equal == run.texts for run in runs)
    return 0 if written and same else 1


def _benchmark(options: argparse.Namespace, pool: Pool, asked: Asked, peers: Sequence[Peer]) -> int:
    """Measure, print, and write report and history: also what was measured before an error or an interruption."""
    store = Store(options.db) if options.db else None
    batch = uuid.uuid4().hex
    origin = Origin("bench", suite=asked.suite, batch_id=batch)
    runs: list[Entry] = []
    beside: list[PeerRun] = []
    stopped: BaseException | None = None
    ending: str | None = None
    if options.stream:
        pool.traffic = new_traffic(pool)
    try:
        try:
            policies, often = [PLAIN, *asked.policies], {"seed": asked.seed, "repeat": asked.repeat}
            entries = SuiteRun(pool, asked.items, policies, asked.params, **often, origin=origin).all()
            for entry in beside_peers(entries, pool, peers, asked.params, beside) if peers else entries:
                runs.append(entry)
                if options.stream:  # before the next prompt begins
                    learn_from(pool, entry.run)
                if store and entry.run.generation.rounds:
                    store.add(entry.run).wait()  # so that it is not written beside the next run
                shared.show_progress(len(runs), asked.runs, "runs")
        except (Exception, KeyboardInterrupt) as error:
            if not runs and isinstance(error, Exception):
                raise
            stopped = error
            ending = _ending(error, len(runs), asked.runs)
        ending = ending or too_long(sum(run.too_long for run in runs), asked.runs)
        if store and ending:
            store.add(ends=batch, ending=ending)
        if sys.stderr.isatty() and len(runs) < asked.runs:
            print(file=sys.stderr)
        report = make_report(pool, asked, runs, interrupted=stopped is not None)
        report["peers"] = summary_of_peers(beside)
        tables = [render_table(report), *([render_peers(report["peers"])] if beside else [])]
        tables += [render_curve(runs, asked.policies)] if options.stream and runs else []
        written = not options.out or _write(options.out, report)
        print("\n\n".join([*tables, *notes(report)]))
    finally:
        recorded = not store or (store.close() and not store.problem)
        if store and not recorded:
            shared.warn(f"the history is incomplete: {store.problem}")
    if store and recorded and runs:
        advised = any(usable(entry.run) for entry in runs)
        more = f": advise --db {quote(str(options.db))} --batch {batch}" if advised else ""
        shared.warn(f"recorded as batch {batch}{more}")
    if stopped is not None:
        shared.warn(f"{ending}. {_left(options, runs, written)}")
        return 130 if isinstance(stopped, KeyboardInterrupt) else 1
    policies = report["policies"].values()
    well = all(p["prompts"] and not p["failed"] and p["lossless"] is not False for p in policies)
    return 0 if well and written and recorded else 1


def _write(path: Path, report: dict[str, Any]) -> bool:
    """Write the report; if that fails, print why and return ``False``."""
    try:
        with replacing(path) as part:
            part.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        shared.warn(f"--out: {path} could not be written ({error.strerror})")
        return False
    return True


def _ending(error: BaseException, done: int, planned: int) -> str:
    """Why a benchmark did not come to its end."""
    after = f"after {done} of {planned} runs"
    by_hand = isinstance(error, KeyboardInterrupt)
    return f"interrupted {after}" if by_hand else f"stopped {after}: {error_message(error)}"


def _left(options: argparse.Namespace, runs: Sequence[Entry] | Sequence[BatchFigures], written: bool) -> str:
    """What an interrupted benchmark has written."""
    if not runs:
        return "Nothing has been measured yet."
    places = ["the table above"]
    if options.out and written:
        places.append(f"the report {options.out}")
    if options.db:
        places.append(f"the history {options.db}")
    return f"The finished runs are in {', '.join(places)}. The same command starts again from the beginning."
