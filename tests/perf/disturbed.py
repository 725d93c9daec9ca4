"""What it costs ``rate-hedge`` to learn what rounds cost while it plays, and that some were measured at a bad time.

    python -m multidraft bench stream.jsonl --policies round-robin --max-new-tokens 256 --db runs.db
    python -m tests.perf.disturbed runs.db

Recorded texts are replayed. The policy is not told their costs, as in other replays, but has a ``CostMeter`` to which
each round is told, as live, off by chance. Every so many texts it begins anew with what a warm-up measures, and that
as if the machine had been busy meanwhile: drafts took several times as long (of few tokens, or long ones too), or
drafts and verification, or long verifications alone; or as if it had not, and were busy since. Printed is how many
times as many seconds and rounds it takes as by the true costs, from the router and cold; and, in the mean of these,
with other values of the numbers that are there for it.
"""

import argparse
import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np

from drafters import costs
from drafters.card import load_card
from drafters.costs import CostMeter, Costs
from drafters.linear_fit import LinearFit
from multidraft.bench.table import markdown
from multidraft.policies import NO_DRAFTER, POLICIES, Context, Feedback, rate_hedge
from multidraft.policies.rate_hedge import RateHedge
from multidraft.replay.recorded import Recorded, of_newest_bench, recorded_texts, route_of, texts_with_costs

FACTORS = (1.5, 2.5, 4.0)
STARTS = ("router", "cold")
CONSTANTS = (
    (costs, "STALE", (1e-9, 0.05, 0.25)),
    (costs, "DOUBTED", (0.25, 0.7)),
    (costs, "PLAIN_MEMORY", (0.98,)),
    (LinearFit, "FASTER", (0.0, 0.6, 0.9)),
    (rate_hedge, "LONG_AFTER", (1, 4, 10**9)),
)
"""Where they are, and other values of each: without the fading of what was measured, the first; likewise the second; a
longest draft now and then, the last."""
SINCE = "nothing; since then all"
DISTURBED = ("drafts", "drafts, long ones too", "drafts and verification", "long verifications", SINCE)
LONG = 8
"""Drafted tokens of a long verification."""
EVALUATED = (1, 2, 1, 3, 1, 2)
"""Tokens to read in the warm-up's other evaluations."""
SPREAD = 0.1
"""Standard deviation of the logarithm of a measurement."""


class Metered(RateHedge):
    """``rate-hedge`` that learns from its rounds what they cost. Seconds of its replays are still the true ones."""

    name = "metered"
    learnt: ClassVar[CostMeter]

    def begin(self, context: Context | None = None) -> None:
        if context is not None and isinstance(context.costs, Costs):
            self.true, self.chance = context.costs, np.random.default_rng(self.seed)
            context = replace(context, costs=self.learnt)
        super().begin(context)
        if context is not None:
            self.learnt.begin(context.prompt_tokens, self.candidates(), by_time=True)

    def update(self, feedback: Feedback) -> None:
        arm = None if feedback.arm == NO_DRAFTER else feedback.arm
        play(self.learnt, self.true, arm, feedback, self.chance)
        if feedback.gamma is not None:
            self.learnt.evaluated(self.true.evaluation_seconds(self.learnt.unread.mean) * off(self.chance))
        super().update(feedback)


def off(chance: np.random.Generator) -> float:
    """By what factor a measurement is off."""
    return float(np.exp(SPREAD * chance.standard_normal()))


def play(meter: CostMeter, true: Costs, arm: int | None, played: Feedback, chance: np.random.Generator) -> None:
    """Tell the meter of a round."""
    width = 1.0 if arm is None or true.width is None else float(true.width[arm])
    drafting = 0.0 if arm is None else true.drafting(arm, played.drafted, meter.unread.tokens[arm])
    nodes = round(width * played.drafted)
    seconds = drafting * off(chance), true.verification(nodes) * off(chance)
    meter.played(arm, played.draft_length, nodes, *seconds, played.emitted, played.drafted)


def warm(true: Costs, shapes: Sequence[Any], length: int, drafts: Sequence[int] = (1, 1, 2)) -> CostMeter:
    """What a warm-up measures: an evaluation of a text that nobody has read and some of few tokens, a verification of
    each length, ``drafts`` of each drafter, which end after a token or two, as of a text that none knows, and rounds
    without."""
    meter, chance = CostMeter(len(shapes), shapes), np.random.default_rng(0)
    for unread in (100, *EVALUATED):
        meter.begin(unread, ())
        meter.evaluated(true.evaluation_seconds(unread) * off(chance))
    for nodes in range(1, length + 1):
        meter.verify.clock(nodes, true.verification(nodes) * off(chance))
    for arm in range(len(shapes)):
        for drafted in drafts:
            meter.unread.evaluated()
            play(meter, true, arm, Feedback(arm, drafted, 0, 1, length), chance)
        play(meter, true, None, Feedback(NO_DRAFTER, 0, 0, 1, 0), chance)
    return meter


def slower(line: LinearFit, factor: float) -> None:
    """As if all of its measurements had taken so many times as long."""
    line.y, line.xy = factor * line.y, factor * line.xy


def disturbed(meter: CostMeter, what: str, factor: float) -> CostMeter:
    """A copy of what is measured, with the given part slowed down."""
    meter = copy.deepcopy(meter)
    if since := what == SINCE:
        factor = 1 / factor
        slower(meter.evaluation, factor)
    if what != "long verifications":
        for line in {id(line): line for line in meter.steps}.values():
            slower(line, factor)
    if what == "drafts and verification" or since:
        slower(meter.verify, factor)
        slower(meter.plain, factor)
    if what == "long verifications":
        extra = (factor - 1) * meter.verify.at(LONG) * meter.verify.weight / 2  # of half of them
        meter.verify.y, meter.verify.xy = meter.verify.y + extra, meter.verify.xy + LONG * extra
    return meter


def measure(texts: Sequence[Recorded], policy: str, meter: CostMeter | None = None, every: int = 10) -> np.ndarray:
    """Rounds and seconds of all texts; the meter is as it is given after ``every`` so many."""
    route, sums = route_of(texts[0].run.conditions.pool, texts[0].drafters), np.zeros(2)
    for number, text in enumerate(texts):
        if meter and number % every == 0:
            Metered.learnt = copy.deepcopy(meter)
        with patch.dict(POLICIES, {Metered.name: Metered}):
            found = text.replay(policy, route)
        sums += found.rounds, found.seconds or 0.0
    return sums


def disturbances(
    texts: Sequence[Recorded], shapes: Sequence[Any], usual: np.ndarray, every: int
) -> dict[tuple[str, float], np.ndarray]:
    """Rounds and seconds after each disturbance ÷ the ``usual`` ones, ``(starts, 2)``."""
    true, length = texts[0].costs, texts[0].run.params.draft_length
    short, long = warm(true, shapes, length), warm(true, shapes, length, (1, 4, length))
    cases = [("nothing", 1.0)]
    cases += [(what, by) for what in DISTURBED for by in FACTORS]
    found = {}
    for what, factor in cases:
        meter = disturbed(long if what == "drafts, long ones too" else short, what, factor)
        ran = [measure(texts, f"metered:start={start}", meter, every) for start in STARTS]
        found[what, factor] = np.array(ran) / usual
    return found


def main(path: Path, every: int) -> None:
    """Print both tables."""
    texts = texts_with_costs(of_newest_bench(recorded_texts(path)), path)
    card, _ = load_card(texts[0].run.conditions.pool)
    shapes = [entry.kind if entry.kind == "lm" else entry.name for entry in card.drafters]
    usual = np.array([measure(texts, f"rate-hedge:start={start}") for start in STARTS])
    found = disturbances(texts, shapes, usual, every)
    rows = [
        (what, f"{by:g}", *(f"{seconds:.3f} ({rounds:.2f})" for rounds, seconds in ratios))
        for (what, by), ratios in found.items()
    ]
    print(f"{len(texts)} texts of {texts[0].run.conditions.pool}: seconds (rounds) ÷ those by the true costs\n")
    print(markdown(["measured too slow", "times", *STARTS], rows), "\n")
    rows = [("as it is", *_summary(found))]
    for holder, name, values in CONSTANTS:
        for value in values:
            with patch.object(holder, name, value):
                rows.append((f"`{name} = {value:g}`", *_summary(disturbances(texts, shapes, usual, every))))
    print(markdown(["seconds", *(f"{start}, {of}" for start in STARTS for of in ("nothing", "mean of all"))], rows))


def _summary(found: dict[tuple[str, float], np.ndarray]) -> list[str]:
    """Seconds undisturbed, and in the mean of the disturbances, of each start."""
    seconds = np.array(list(found.values()))[:, :, 1]
    return [f"{value:.3f}" for start in seconds.T for value in (start[0], start[1:].mean())]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("db", type=Path)
    parser.add_argument("--every", type=int, default=10, help="texts after which costs are disturbed (%(default)s)")
    options = parser.parse_args()
    main(options.db, options.every)
