"""What traffic teaches, by replay of a recorded stream: a policy cold, from the traffic and from the trained router.

    python -m tests.perf.traffic_stream --prompts 240 stream.jsonl
    python -m multidraft bench stream.jsonl --policies round-robin,normal-hedge --max-new-tokens 256 --db runs.db
    python -m tests.perf.traffic_stream runs.db
    python -m tests.perf.traffic_stream --live live.db stream.jsonl

The first command writes held-out prompts of all pocket tasks, shuffled. The last prints tokens per second by the
recorded costs and tokens per round of each part of the stream, how they compare with the marks, and the same prompts
sorted by four topics. The pool has no router there but for policies that start from it. Rounds do not depend on the
clock, but for ``rate-hedge``, which chooses by the recorded costs. ``--live`` decodes the stream under ``rate-hedge``
from the traffic, cold and from the router, and under a fixed drafter, prompt by prompt in turn, and compares measured
seconds.
"""

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from multidraft.__main__ import main
from multidraft.bench.summary import Row, in_parts
from multidraft.bench.table import markdown
from multidraft.commands import bench
from multidraft.engine.experience import traffic_with
from multidraft.replay.experiment import as_traffic
from multidraft.replay.recorded import Recorded, recorded_texts, route_of, texts_with_costs
from multidraft.replay.walk import Replayed
from multidraft.training.pocket.corpus import FAMILIES
from storage import experiments
from storage.figures import ratio_of_totals
from storage.filters import Filter
from tests.runs import result_of

TRAFFIC, COLD, ROUTER = (f"rate-hedge:start={start}" for start in ("traffic", "cold", "router"))
PAPERS = ("ucb:reward=be", "ucbspec", "exp3spec", "normal-hedge:start=cold")
TOPICS = ("math", "sql", "translation", "json")
MOST_TOKENS = 256


def write_prompts(path: Path, count: int, seed: int = 2026) -> None:
    """Held-out prompts of all tasks alike, each once, shuffled."""
    rng, rows = random.Random(seed), dict[str, str]()
    while len(rows) < count:
        name = sorted(FAMILIES)[len(rows) % len(FAMILIES)]
        rows.setdefault(FAMILIES[name].example(rng, "heldout").prompt, name)
    lines = [{"id": f"{task}-{n}", "task": task, "prompt": prompt} for n, (prompt, task) in enumerate(rows.items())]
    rng.shuffle(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def played(texts: Sequence[Recorded], specs: Sequence[str]) -> dict[str, list[Replayed]]:
    """The replays of all policies."""
    route = route_of(texts[0].run.conditions.pool, texts[0].drafters)
    return result_of(as_traffic(texts, specs, route, voice=False))


def seconds(found: Sequence[Replayed], part: range | None = None) -> list[float]:
    return [found[n].seconds or 0.0 for n in part or range(len(found))]


def live(prompts: Path, path: Path, pool: str) -> None:
    """The stream, decoded; the traffic does not hear the router."""
    fixed = "fixed:general"
    specs = ["rate-hedge", COLD, ROUTER, fixed]  # the first from the traffic, as is its default
    given = ["bench", str(prompts), "--pool", pool, "--stream", "--policies", ",".join(specs), "--db", str(path)]
    with patch.object(bench, "new_traffic", lambda pool: traffic_with(len(pool.drafters), pool.draft_length, None)):
        assert main([*given, "--max-new-tokens", str(MOST_TOKENS)]) == 0
    rows = [Row.recorded(values) for values in experiments.figures(path, Filter())]
    ran = {spec: [row for row in rows if row.policy == spec] for spec in specs}
    count = len(ran[specs[0]])
    for title, over, part in (
        ("from the router, after 60", ROUTER, slice(60, count)),
        ("from the router, second half", ROUTER, slice(count // 2, count)),
        (f"{fixed}, after 60", fixed, slice(60, count)),
        ("cold, after 60", COLD, slice(60, count)),
    ):
        told = []
        for name in ("seconds", "request_seconds", "rounds"):
            ratio = ratio_of_totals(*([getattr(row, name) for row in ran[spec][part]] for spec in (over, specs[0])))
            told.append(ratio.text() if ratio else "")
        print("from the traffic ÷ {}: decode {}, whole request {}, tokens per round {}".format(title, *told))


def report(path: Path) -> None:
    texts = texts_with_costs(recorded_texts(path), path)[::-1]
    texts = [text for text in texts if text.run.conditions == texts[-1].run.conditions]
    fixed = [f"fixed:{name}" for name in texts[0].drafters]
    found = played(texts, [TRAFFIC, COLD, ROUTER, *PAPERS, *fixed])
    best = min(fixed, key=lambda spec: sum(seconds(found[spec])))
    parts = in_parts(len(texts), (20, 60, len(texts) // 2))
    rows = []
    for spec in (TRAFFIC, COLD, ROUTER, *PAPERS, best):
        cells = []
        for part in [*parts, range(len(texts))]:
            tokens = sum(texts[n].tokens for n in part)
            rounds = sum(found[spec][n].rounds for n in part)
            cells.append(f"{tokens / sum(seconds(found[spec], part)):.0f} ({tokens / rounds:.2f})")
        rows.append((spec, *cells))
    heads = [f"{part.start + 1}–{part.stop}" for part in parts]
    print(f"{len(texts)} texts of {texts[0].run.conditions.pool}: tokens/s by recorded costs (tokens per round)\n")
    print(markdown(["policy", *heads, "all"], rows), "\n")
    late, half = range(60, len(texts)), range(len(texts) // 2, len(texts))
    cold = min(PAPERS, key=lambda spec: sum(seconds(found[spec])))
    for title, over, under, part, mark in (
        ("from the traffic ÷ from the router, after 60", ROUTER, TRAFFIC, late, 0.97),
        ("the same, second half", ROUTER, TRAFFIC, half, 1.0),
        (f"from the traffic ÷ {best}, after 60", best, TRAFFIC, late, 1.05),
        (f"cold ÷ {cold}, the best of the papers' cold", cold, COLD, range(len(texts)), 1.0),
    ):
        ratio = ratio_of_totals(seconds(found[over], part), seconds(found[under], part))
        assert ratio
        print(f"{title}: {ratio.value:.3f} ({ratio.low or 0:.3f}–{ratio.high or 0:.3f}), mark {mark:g}")
    topics = [[text for text in texts if text.run.origin.task == topic] for topic in TOPICS]
    ordered = [text for topic in topics for text in topic]
    if all(topics):
        turns, begin, known = played(ordered, [TRAFFIC, *fixed]), 0, 0.0
        for topic in topics:
            part = range(begin, begin := begin + len(topic))
            known += min(sum(seconds(turns[spec], part)) for spec in fixed)
        share = sum(seconds(turns[TRAFFIC])) / known
        print(f"four topics in turn, time ÷ that of the best fixed drafter of each: {share:.3f}, mark 1.08")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, help="write so many prompts to the file instead")
    parser.add_argument("--live", type=Path, metavar="DB", help="decode the prompts of the file into this history")
    parser.add_argument("--pool", default="pocket", help="the pool that decodes them (%(default)s)")
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    if options.prompts:
        write_prompts(options.file, options.prompts)
    elif options.live:
        live(options.file, options.live, options.pool)
    else:
        report(options.file)
