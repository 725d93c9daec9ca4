"""What a student makes of new traffic: a stream of prompts with it and without, then the old tasks again.

    python -m tests.perf.student gsm8k_train.jsonl

decodes the prompts on ``pocket-student`` twice, by turns prompt by prompt: with the student learning between prompts,
in its share of the time, and with the student as it was. It prints tokens per round and tokens per second by blocks of
prompts, the seconds of the whole streams, those of training counted, and the same on held-out prompts of the old
tasks, before and after.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

from drafters.pool import Pool, load_pool
from drafters.sampling import SamplingParams
from multidraft.bench.suites import SuiteItem, load_suite, spread
from multidraft.engine.decoding import Decoding
from storage.records import Generation

POLICY = "fixed:student"
LAST = 50
"""Prompts at the end of the stream that its gain is told of."""


class StreamClock:
    """Seconds of one stream; those of the other one, which has its turns in between, do not count."""

    def __init__(self) -> None:
        self.counted, self.since = 0.0, None

    def __call__(self) -> float:
        return self.counted + (0.0 if self.since is None else time.perf_counter() - self.since)

    def __enter__(self) -> None:
        self.since = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.counted, self.since = self(), None


def new_traffic(path: str, count: int) -> list[SuiteItem]:
    """Prompts of a file of JSON lines, the ``prompt`` or ``question`` of each, in an order drawn once for all."""
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    chosen = random.Random(0).sample(rows, min(count, len(rows)))
    return [SuiteItem(str(number), row.get("prompt") or row["question"]) for number, row in enumerate(chosen)]


def told(runs: Sequence[Generation]) -> str:
    """Tokens per round and tokens per second of some runs."""
    tokens, rounds = sum(len(run.token_ids) for run in runs), sum(len(run.rounds) for run in runs)
    seconds = sum(run.seconds for run in runs)
    return f"{tokens / rounds:5.2f} tokens/round {tokens / seconds:7.0f} tokens/s"


def answers(pool: Pool, items: Sequence[SuiteItem], params: SamplingParams, learn: bool = False) -> list[Generation]:
    """The items answered on a pool."""
    return [Decoding(pool, item.prompt, POLICY, params, learn=learn).run() for item in items]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the streams and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", help="new traffic: JSON lines with a prompt or question each")
    parser.add_argument("--pool", default="pocket-student")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--old", type=int, default=42, help="prompts of the bundled suite")
    parser.add_argument("--block", type=int, default=25)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    options = parser.parse_args(arguments)
    items = new_traffic(options.prompts, options.count)
    old = spread(load_suite("pocket").items, options.old)
    taught, plain = load_pool(options.pool), load_pool(options.pool, learns=False)
    params = SamplingParams(options.max_new_tokens, draft_length=plain.draft_length)
    student = next(drafter for drafter in taught.drafters if drafter.kind == "student")
    for pool in (taught, plain):
        answers(pool, items[:2], params)
    print(f"old tasks before:  {told(answers(plain, old, params))}")
    learning = student.learner  # type: ignore[attr-defined]
    learning.clock = clock = StreamClock()
    learning._asked_at = 0.0
    with_it, without, trained = list[Generation](), list[Generation](), 0.0
    for number, item in enumerate(items, 1):
        without += answers(plain, [item], params)
        with clock:
            with_it += answers(taught, [item], params, learn=True)
            while seconds := taught.study():
                trained += seconds
        assert with_it[-1].token_ids == without[-1].token_ids
        if number % options.block == 0:
            last = slice(-options.block, None)
            print(
                f"{number:4}  without: {told(without[last])}   with: {told(with_it[last])}",
                student.report(),
                flush=True,
            )
    whole = [sum(run.request_seconds for run in runs) for runs in (without, with_it)]
    print(f"whole stream: {whole[0]:.1f} s without, {whole[1] + trained:.1f} s with, {trained:.1f} s of them training")
    print(f"last {LAST}: without {told(without[-LAST:])}, with {told(with_it[-LAST:])}")
    print(f"old tasks after:   {told(answers(taught, old, params))}")


if __name__ == "__main__":
    main()
