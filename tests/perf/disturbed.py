"""What it costs ``rate-hedge`` that costs were measured at a bad time.

    python -m tests.perf.disturbed

Prompts are decoded live, each beginning with costs that are as if the machine had been busy while some of them were
measured: drafts, or drafts and verification, took several times as long, or only long verifications did. Printed is how
many times as many rounds it takes, and how many times as long by the undisturbed costs.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Sequence

import multidraft as md
from drafters.costs import CostMeter, Costs
from drafters.line import Line
from multidraft.bench.suites import load_suite, spread
from multidraft.bench.table import markdown
from multidraft.service.lending import warm_up
from storage.records import Generation

FACTORS = (1.5, 2.5, 4.0)
LONG = 8
"""Drafted tokens of a long verification."""


def slower(line: Line, factor: float) -> None:
    """As if all of its measurements had taken so many times as long."""
    line.y, line.xy = factor * line.y, factor * line.xy


def disturbed(meter: CostMeter, what: str, factor: float) -> CostMeter:
    """A copy of what is measured, with the given part slowed down."""
    meter = copy.deepcopy(meter)
    if what in ("drafts", "drafts and verification"):
        for line in {id(line): line for line in meter.steps}.values():
            slower(line, factor)
    if what == "drafts and verification":
        slower(meter.verify, factor)
    if what == "long verifications":
        extra = (factor - 1) * meter.verify.at(LONG) * meter.verify.weight / 2  # of half of them
        meter.verify.y, meter.verify.xy = meter.verify.y + extra, meter.verify.xy + LONG * extra
    return meter


def priced(generation: Generation, costs: Costs) -> float:
    """Seconds of its rounds by costs, evaluations as measured."""
    return sum(
        (0.0 if r.arm is None else costs.drafting(r.arm, len(r.drafted)))
        + costs.verification(r.nodes)
        + (r.evaluate_seconds if r.evaluated else 0.0)
        for r in generation.rounds
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", default="pocket", help="a bundled pool or a card")
    parser.add_argument("--suite", default="pocket")
    parser.add_argument("--limit", type=int, default=14, help="prompts (%(default)s)")
    parser.add_argument("--policy", default="rate-hedge:start=router")
    parser.add_argument("--draft-length", type=int, default=12)
    options = parser.parse_args(arguments)
    pool = md.load_pool(options.pool)
    warm_up(pool)
    meter, params = pool.costs, md.SamplingParams(200, draft_length=options.draft_length)
    cases = [("nothing", 1.0)]
    cases += [(what, by) for what in ("drafts", "drafts and verification", "long verifications") for by in FACTORS]
    sums = {case: [0.0, 0.0] for case in cases}
    for item in spread(load_suite(options.suite).items, options.limit):
        for case in cases:
            pool.costs = disturbed(meter, *case)
            generation = md.generate(pool, item.prompt, options.policy, params)
            sums[case][0] += len(generation.rounds)
            sums[case][1] += priced(generation, meter.costs(options.draft_length))
    usual = sums[cases[0]]
    rows = [
        (what, f"{by:g}", *(f"{one / of:.2f}" for one, of in zip(sums[what, by], usual, strict=True)))
        for what, by in cases
    ]
    print(markdown(["measured too slow", "times", "rounds", "seconds"], rows))


if __name__ == "__main__":
    main()
