"""A race as data: finished generations in, what the browser needs to play them again out.

No HTML and no Gradio here. ``race.js`` reads exactly this; all texts in it are plain and become text nodes there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, Literal

from multidraft.bench.measure import BASELINE
from multidraft.policies import parse_spec
from multidraft.policies.titles import policy_title
from multidraft.service.race import State
from multidraft.ui.widgets.formats import count
from multidraft.ui.widgets.tokens import arm_class, describe_round
from storage.records import Generation, Round
from storage.run import Run

DIGITS = 6
"""Times are sent to the microsecond: finer than any clock behind them, and half the size."""


@dataclass(frozen=True)
class RoundReplay:
    """One round as the browser shows it.

    Attributes:
        end: decoding seconds of the lane until this round's tokens stand.
        kind: CSS class of the accepted tokens, that of the drafter that proposed them.
        accepted: how many of ``pieces`` were proposed by the drafter; the others are the target's own.
        pieces: the text of each token.
        about: one line on the round.
    """

    end: float
    kind: str
    accepted: int
    pieces: tuple[str, ...]
    about: str


@dataclass(frozen=True)
class LaneReplay:
    """One lane. What is not known before the lane is measured has its default.

    Attributes:
        title: the policy's readable name.
        state: how far it is; only measured lanes have rounds.
        place: 1 for the lane that finished first; lanes of equal time share a place.
        seconds: of decoding, the sum over the rounds; ``prefill`` seconds stand apart.
        shares: part of ``seconds`` by phase: draft, verify, policy, evaluate.
        tokens: emitted tokens.
        rate: tokens per second.
        speedup, request_speedup: of decoding, and of the whole request, as they are recorded.
        calls: forwards of the target, one per round; ``saved``: how many fewer than one per token.
        rounds: in order.
    """

    title: str
    state: State = "measured"
    place: int | None = None
    seconds: float = 0.0
    prefill: float = 0.0
    shares: tuple[float, ...] = ()
    tokens: int = 0
    rate: float | None = None
    speedup: float | None = None
    request_speedup: float | None = None
    calls: int = 0
    saved: int = 0
    rounds: tuple[RoundReplay, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What can be said of the lanes' outputs, in words.

    Attributes:
        kind: ``same`` (token by token), ``differ``, ``sampled`` (not comparable: each is a draw of its own),
            ``partial`` (fewer lanes than two can be compared).
        text: a sentence or two.
    """

    kind: Literal["same", "differ", "sampled", "partial"]
    text: str


def pending(specs: Sequence[str], states: Sequence[State]) -> dict[str, Any]:
    """The data of a race whose lanes are still being measured."""
    lanes = [LaneReplay(lane_title(spec), state) for spec, state in zip(specs, states, strict=True)]
    return {"ready": False, "seconds": 0.0, "verdict": None, "lanes": [asdict(lane) for lane in lanes]}


def replay_data(runs: Sequence[Run]) -> dict[str, Any]:
    """The data of a race that was run.

    Args:
        runs: one per lane, in the lanes' order.

    Returns:
        JSON-serialisable: ``ready`` (true), ``seconds`` (of the slowest lane), ``verdict`` (a :class:`Verdict`) and
        ``lanes`` (:class:`LaneReplay`), as dicts.
    """
    generations = [run.generation for run in runs]
    lanes = [_lane(*lane) for lane in zip(runs, places(generations), strict=True)]
    greedy, lossless = all(run.params.greedy for run in runs), [run.scores.lossless for run in runs]
    return {
        "ready": True,
        "seconds": max((lane.seconds for lane in lanes), default=0.0),
        "verdict": asdict(verdict(generations, greedy=greedy, lossless=lossless)),
        "lanes": [asdict(lane) for lane in lanes],
    }


def lane_title(spec: str) -> str:
    """The policy's readable name; autoregressive decoding is called so as well."""
    return policy_title(spec) + (" (autoregressive)" if is_plain(spec) else "")


def is_plain(spec: str) -> bool:
    """Whether a lane of this spec decodes without drafters."""
    return parse_spec(spec)[0] == BASELINE


def places(generations: Sequence[Generation]) -> list[int]:
    """Finish order by decoding seconds, from 1."""
    times = [g.seconds for g in generations]
    return [1 + sum(other < time for other in times) for time in times]


def verdict(generations: Sequence[Generation], *, greedy: bool, lossless: Sequence[bool | None] = ()) -> Verdict:
    """Are the outputs the same? For sampled ones that is not the question, and the verdict says so."""
    if not greedy:
        return Verdict(
            "sampled",
            "Sampled: every lane draws from exactly the same distribution, the target's own, so the texts may differ "
            "and so may their lengths. Compare tokens per second rather than who ends first.",
        )
    if len(generations) < 2:
        return Verdict("partial", "Only one lane was measured: there is nothing to compare it with.")
    first, *others = (g.token_ids for g in generations)
    if all(ids == first for ids in others):
        return Verdict(
            "same", f"All {len(generations)} outputs are identical, token by token ({count(len(first), 'token')})."
        )
    position = min(_first_difference(first, ids) for ids in others if ids != first)
    where = f"The outputs are NOT identical: they diverge at token {position + 1}."
    if lossless and all(lossless):
        return Verdict(
            "differ",
            f"{where} There two tokens are near-ties for the target and rounding decided; every lane was checked and "
            "is the target's greedy choice within rounding.",
        )
    return Verdict(
        "differ",
        f"{where} A near-tie decided by rounding can do that, but the check did not confirm it for every lane. "
        "Please report it with this prompt.",
    )


def _lane(run: Run, place: int) -> LaneReplay:
    g = run.generation
    ends = accumulate(r.seconds for r in g.rounds)
    phases = (
        sum(r.draft_seconds for r in g.rounds),
        sum(r.verify_seconds for r in g.rounds),
        sum(r.policy_seconds for r in g.rounds),
        sum(r.evaluate_seconds for r in g.rounds),
    )
    rate = g.tokens_per_second if g.rounds else None
    return LaneReplay(
        title=lane_title(g.policy),
        place=place,
        seconds=round(g.seconds, DIGITS),
        prefill=round(g.prefill_seconds, DIGITS),
        shares=tuple(round(seconds / g.seconds, 4) for seconds in phases) if g.seconds else (),
        tokens=len(g.token_ids),
        rate=rate,
        speedup=run.speedup,
        request_speedup=run.request_speedup,
        calls=len(g.rounds),
        saved=len(g.token_ids) - len(g.rounds),
        rounds=tuple(_round(r, round(end, DIGITS)) for r, end in zip(g.rounds, ends, strict=True)),
    )


def _round(r: Round, end: float) -> RoundReplay:
    kind = arm_class(r.arm) if r.arm is not None else "md-own"
    return RoundReplay(end, kind, r.accepted, r.pieces, describe_round(r))


def _first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    """The first position where two different sequences differ; one that ends differs from one that goes on."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
