"""Options that several commands share."""

from __future__ import annotations

import argparse
import errno
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Never

from tqdm import tqdm

import multidraft as md
from drafters.progress import Step
from multidraft.bench.suites import Suite, spread
from multidraft.engine.arguments import read_seed
from multidraft.policies.specs import canonical_spec, check_specs, without_divergence
from storage.aggregates import filters
from storage.connection import check_writable, is_database
from storage.filters import Filter
from storage.queries import count

if TYPE_CHECKING:
    from drafters.pool import Pool

REPLAY_POLICIES = "ucb:reward=be,exp3:reward=be,ucbspec,exp3spec,normal-hedge,rate-hedge"


def warn(message: str) -> None:
    """A line on standard error, of what does not end the command."""
    print(f"multidraft: {message}", file=sys.stderr)


def show_progress(done: int, planned: int, unit: str) -> None:
    """A line on standard error, written over by the next one; elsewhere than on a terminal only one in fifty."""
    if sys.stderr.isatty():
        print(f"\r{done}/{planned} {unit}", end="\n" if done == planned else "", file=sys.stderr, flush=True)
    elif done % 50 == 0 or done == planned:
        print(f"{done}/{planned} {unit}", file=sys.stderr, flush=True)


def finite(text: str) -> float:
    """The type of options that are numbers, neither infinite nor NaN."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number, got {text!r:.40}")
    return value


def add_pool(sub: argparse.ArgumentParser) -> None:
    """The option ``--pool``."""
    sub.add_argument(
        "--pool",
        default="pocket",
        help="a bundled card's name or a path to a card; pocket:without=lookup,sql leaves drafters out",
    )


def load_pool(name_or_path: str | Path, device: str | None = None) -> Pool:
    """Load a pool, on ``device`` or else where its card says; a progress bar shows what is fetched from the Hub."""
    from drafters.pool import load_pool as load  # takes seconds, which commands without a pool need not wait for

    bar: tqdm[Never] | None = None

    def report(step: Step) -> None:
        nonlocal bar
        if step.doing == "fetching" and (bar is None or bar.desc != f"fetching {step.what}"):
            if bar is not None:
                bar.close()
            bar = tqdm(desc=f"fetching {step.what}", unit="B", unit_scale=True)
        if bar is not None and step.total_bytes:
            bar.total, bar.n = step.total_bytes, step.done_bytes
            bar.refresh()

    try:
        return load(name_or_path, device=device, progress=report)
    finally:
        if bar is not None:
            bar.close()  # so that further output begins on a new line


def add_decoding(sub: argparse.ArgumentParser) -> None:
    """The options of decoding."""
    sub.add_argument("--max-new-tokens", type=int, default=128, help="(default: %(default)s)")
    sub.add_argument("--temperature", type=float, default=0.0, help="0 decodes greedily (default: %(default)s)")
    sub.add_argument("--top-p", type=float, default=1.0, help="nucleus sampling (default: %(default)s, all tokens)")
    sub.add_argument("--top-k", type=int, default=0, help="sample from the k likeliest tokens (default: 0, all tokens)")
    sub.add_argument("--draft-length", type=int, help="most tokens per draft (default: the pool's)")
    text = "of sampling and of the policy (default: %(default)s); under a policy that goes by measured time, such as "
    sub.add_argument("--seed", type=int, default=0, help=f"{text}rate-hedge, a sampled text may differ all the same")


def sampling_params(options: argparse.Namespace, draft_length: int) -> md.SamplingParams:
    """The sampling parameters that the options give; a :class:`UserError` if one of them is out of range."""
    fields = md.SamplingParams.__dataclass_fields__
    given = {name: value for name, value in vars(options).items() if name in fields and value is not None}
    try:
        return md.SamplingParams(**{"draft_length": draft_length, **given})
    except ValueError as error:
        raise md.UserError(str(error)) from None


def check_decoding(options: argparse.Namespace, policies: Sequence[str]) -> None:
    """Refuse, before a pool is loaded, what no pool could decode: numbers out of range and unknown policies."""
    read_seed(options.seed)
    sampling_params(options, draft_length=1)
    check_specs(policies)


def split_specs(text: str) -> list[str]:
    """Split comma-separated policy specs; ``key=value`` parts belong to the spec before them."""
    specs: list[str] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        if specs and "=" in part and ":" not in part:
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return specs


def split_tasks(text: str) -> tuple[str, ...]:
    """The comma-separated tasks."""
    return tuple(filter(None, (task.strip() for task in text.split(","))))


def add_replay_policies(sub: argparse.ArgumentParser) -> None:
    """The option ``--policies`` of commands that replay."""
    sub.add_argument("--policies", default=REPLAY_POLICIES, help=f"comma-separated (default: {REPLAY_POLICIES})")


def replay_policies(options: argparse.Namespace) -> list[str]:
    """The policies that ``--policies`` names, in a form that can be replayed, each once; a warning says which are
    replayed as another."""
    asked = {canonical_spec(spec): without_divergence(spec) for spec in split_specs(options.policies)}
    if not asked:
        raise md.UserError("no policy is chosen; choose at least one")
    if changed := [f"{spec} as {replayed}" for spec, replayed in asked.items() if replayed != spec]:
        warn(f"replays know no block divergence; replayed with another reward: {', '.join(changed)}")
    return list(dict.fromkeys(asked.values()))


def check_database(path: Path) -> None:
    """Raise :class:`UserError` where there is no history to be read."""
    if not path.exists():
        raise md.UserError(f"there is no database {path}; bench --db and the app write one")


def add_runs(sub: argparse.ArgumentParser) -> None:
    """The options that choose runs."""
    sub.add_argument("--pool", help="only runs of this pool: its name in the history, or the path of its card")
    sub.add_argument("--batch", default="", help="only runs of this batch or benchmark, by the id in its address")
    sub.add_argument("--tasks", default="", help="comma-separated: only runs on these")
    sub.add_argument("--draft-length", type=int, help="only runs with this draft length")


def chosen_runs(options: argparse.Namespace) -> Filter:
    """The runs that the options of :func:`add_runs` choose.

    Raises:
        UserError: there is no history, or no run in it of one of the choices; or the card is not valid.
    """
    check_database(options.db)
    pool = options.pool
    if card := _card_given(options):
        from drafters.card import load_card  # takes seconds, which commands without a card need not wait for

        pool = load_card(card)[0].name
    length = None if options.draft_length is None else str(options.draft_length)
    chosen = Filter(
        pool=pool,
        task=split_tasks(options.tasks),
        batch_id=(options.batch,) if options.batch else (),
        draft_length=length,
    )
    check_known(options.db, pool=[pool] if pool else [], task=chosen.task, draft_length=[length] if length else [])
    if options.batch and not count(options.db, Filter(batch_id=chosen.batch_id)):
        raise md.UserError(f"no run in {options.db} is of the batch {options.batch!r}")
    return chosen


def check_known(db: Path, **asked: Iterable[str]) -> None:
    """Refuse values that no run of a history has in a column; the message lists what there is."""
    known = filters(db)
    for column, values in asked.items():
        for value in values:
            if value not in known[column]:
                there, name = ", ".join(known[column]) or "none", column.replace("_", " ")
                many = {"policy": "policies", "hardware": name}.get(column, f"{name}s")
                raise md.UserError(f"no run in {db} has the {name} {value!r}; {many} there: {there}")


def card_of(options: argparse.Namespace, pool: str) -> str | None:
    """Where the card of ``pool``, whose runs these are, lies: as ``--pool`` says, or as a bundled one."""
    from drafters.card import is_bundled  # likewise

    return _card_given(options) or (pool if is_bundled(pool) else None)


def _card_given(options: argparse.Namespace) -> str | None:
    """``--pool`` if that is the path of a card, not the name of a pool in the history."""
    pool: str | None = options.pool
    if not pool or pool in filters(options.db)["pool"]:
        return None
    file = pool.partition(":without=")[0]  # as of ``drafters.card``
    is_path = os.path.exists(file) or os.path.dirname(file) or file.endswith((".yaml", ".yml"))
    return pool if is_path else None


def limited(suite: Suite, limit: int | None) -> Suite:
    """At most ``limit`` prompts of the suite, evenly spread over it; all of them by default."""
    if limit is not None and limit < 1:
        raise md.UserError("--limit must be at least 1")
    return replace(suite, items=spread(suite.items, limit))


@contextmanager
def written_files(db: Path | None, out: Path | None = None) -> Iterator[None]:
    """Check that a history and another file can be written; on an error remove them if they are new and still empty."""
    missing = [path for path in (out, db) if path and not os.path.lexists(path)]
    try:
        if out:
            _check_writable(out)
        if db:
            check_writable(db)
        yield
    except BaseException:
        for path in missing:
            if os.path.isfile(path) and not (count(path) if path == db else path.stat().st_size):
                for end in ("", "-wal", "-shm"):  # SQLite's own files beside a history
                    Path(f"{path}{end}").unlink(missing_ok=True)
        raise


def check_not_over(out: Path, *used: Path) -> None:
    """Refuse a file to write that is one of those ``used``, which the command reads or records in, or a history."""
    there = os.path.isfile(out)
    for path in used:
        if os.path.realpath(path) == os.path.realpath(out) or (there and path.is_file() and path.samefile(out)):
            raise md.UserError(f"{out} would be written over, which the command reads or records in; name another file")
    if there:
        with suppress(OSError):  # one that cannot be read is told of where it is to be written
            if is_database(out):
                raise md.UserError(f"{out} is a database, which would be lost; name another file")


def _check_writable(path: Path) -> None:
    if not (folder := path.absolute().parent).is_dir():
        raise md.UserError(f"--out: the folder {folder} does not exist; create it first")
    try:
        path.open("a", encoding="utf-8").close()
        if path.is_file() and not os.access(path.resolve().parent, os.W_OK):  # where it is to be replaced by another
            raise PermissionError(errno.EACCES, "its folder takes no new files")
    except OSError as error:
        raise md.UserError(f"--out: {path} cannot be written ({error.strerror}); name another file") from None
