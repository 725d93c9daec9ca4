"""What a student makes of new traffic: a stream of prompts with it and without, then the old tasks again.

    python -m tests.perf.student gsm8k_train.jsonl

decodes the prompts on ``pocket-student`` twice, by turns prompt by prompt: with the student learning between prompts,
in its share of the time, and with the generalist, which does not learn. It prints by blocks of prompts the tokens per
round of both and of the student as it began (by exact replay), tokens per second, the seconds of the whole streams,
those of training counted, and the old tasks before and after it all: by each drafter alone, and by policies that have
both, the change told against the same policy before and against the generalist alone. How far training comes in its
share depends on the machine. ``--share`` and ``--pause`` say how much of the time is for training, and how long nobody
asks after each answer.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import multidraft as md
from drafters.pool import Pool, load_pool
from drafters.sampling import SamplingParams
from multidraft.bench.suites import SuiteItem, load_suite, spread
from multidraft.engine.decoding import Decoding
from storage.records import Generation

STUDENT, GENERAL = "fixed:student", "fixed:general"
MIXED = ("rate-hedge", "normal-hedge", "ucb:reward=be")
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


def per_round(runs: Sequence[Generation]) -> float:
    """Tokens per round of some runs."""
    return sum(len(run.token_ids) for run in runs) / sum(len(run.rounds) for run in runs)


def replayed(pool: Pool, items: Sequence[SuiteItem], runs: Sequence[Generation]) -> dict[str, float]:
    """Tokens per round that each drafter alone would have made of the same texts."""
    rounds = dict.fromkeys((drafter.name for drafter in pool.drafters), 0)
    for item, run in zip(items, runs, strict=True):
        table = md.acceptance_table(pool, pool.encode(item.prompt), run.token_ids, pool.draft_length)
        for arm, name in enumerate(rounds):
            rounds[name] += md.replay(table, f"fixed:arm{arm}").rounds
    return {name: sum(len(run.token_ids) for run in runs) / count for name, count in rounds.items()}


def told(runs: Sequence[Generation]) -> str:
    """Tokens per round and tokens per second of some runs."""
    tokens, seconds = sum(len(run.token_ids) for run in runs), sum(run.seconds for run in runs)
    return f"{per_round(runs):5.2f} tokens/round {tokens / seconds:6.0f} tokens/s"


def answers(
    pool: Pool, items: Sequence[SuiteItem], params: SamplingParams, policy: str, learn: bool = False
) -> list[Generation]:
    """The items answered on a pool."""
    return [Decoding(pool, item.prompt, policy, params, learn=learn).run() for item in items]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the streams and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", help="new traffic: JSON lines with a prompt or question each")
    parser.add_argument("--pool", default="pocket-student")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--old", type=int, default=42, help="prompts of the bundled suite")
    parser.add_argument("--block", type=int, default=25)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--share", type=float, help="of the time for training, instead of the card's")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each answer in which nobody asks")
    options = parser.parse_args(arguments)
    items = new_traffic(options.prompts, options.count)
    old = spread(load_suite("pocket").items, options.old)
    taught, plain = load_pool(options.pool), load_pool(options.pool, learns=False)
    params = SamplingParams(options.max_new_tokens, draft_length=plain.draft_length)
    student = next(drafter for drafter in taught.drafters if drafter.name == "student")
    learner = student.learner  # type: ignore[attr-defined]
    if options.share is not None:
        learner.schedule = replace(learner.schedule, share=options.share)
    for pool, policy in ((taught, STUDENT), (plain, GENERAL)):
        answers(pool, items[:2], params, policy)
    before = {policy: answers(plain, old, params, policy) for policy in (GENERAL, STUDENT, *MIXED)}
    print("old tasks before:", ", ".join(f"{policy} {per_round(runs):.2f}" for policy, runs in before.items()))
    learner.clock = clock = StreamClock()
    learner._asked_at = learner._saved = 0.0
    with_it, without, trained = list[Generation](), list[Generation](), 0.0
    for number, item in enumerate(items, 1):
        without += answers(plain, [item], params, GENERAL)
        with clock:
            with_it += answers(taught, [item], params, STUDENT, learn=True)
            clock.counted += options.pause
            while seconds := taught.study():
                trained += seconds
        assert with_it[-1].token_ids == without[-1].token_ids
        if number % options.block == 0 or number == len(items):
            part = slice(number - options.block, number)
            others = replayed(plain, items[part], without[part])
            print(f"{number:4}  general {told(without[part])}   student {told(with_it[part])}  ", end="")
            print("not learning: " + ", ".join(f"{name} {rate:.2f}" for name, rate in others.items()))
            print(f"      {student.report()}; {trained:.1f} s of training", flush=True)
    whole = [sum(run.request_seconds for run in runs) for runs in (without, with_it)]
    whole[1] += trained
    print(f"whole stream: general {whole[0]:.1f} s, student {whole[1]:.1f} s, {trained:.1f} s of them training")
    one, other = without[-LAST:], with_it[-LAST:]
    gain = sum(run.seconds for run in one) / sum(run.seconds for run in other)
    print(f"last {LAST}: general {told(one)}, student {told(other)}:", end=" ")
    print(f"{per_round(other) / per_round(one):.2f} x the tokens per round, {gain:.2f} x as fast")
    for policy in (STUDENT, *MIXED):
        runs = answers(taught, old, params, policy)
        now, then, alone = per_round(runs), per_round(before[policy]), per_round(before[GENERAL])
        began = sum(run.versions["student"].startswith("0-") for run in runs)
        print(f"old tasks after, {policy}: {now:.2f}, {now / then - 1:+.1%} on before,", end=" ")
        print(f"{now / alone - 1:+.1%} on the generalist alone; {began} of {len(runs)} by the first version")


if __name__ == "__main__":
    main()
