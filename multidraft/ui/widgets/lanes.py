"""Runs of one prompt side by side, played again at their recorded speed or slowed: finished runs in, what the browser
needs out. ``lanes.js`` reads exactly this; all texts in it are plain and become text nodes there:

- ``ready``: whether there is something to play; if not, each of the ``lanes`` has a ``title``, a ``state`` and no
  ``rounds``, and that is all;
- ``seconds``: of the slowest lane; ``speed``: to begin with, unless the viewer has chosen one; 1 is the recorded one;
- ``result``: who is ahead, in a sentence or two, see :func:`result`;
- ``verdict``: what can be said of the outputs: ``text`` and its ``kind``, see :func:`verdict`;
- ``lanes``: each has a ``title``, ``rounds``, a ``place`` (lanes of equal time share one; 0 where timings are too noisy
  to tell it), ``seconds`` of decoding, ``prefill`` seconds, emitted ``tokens``, and as texts ``speedup`` and
  ``request_speedup``;
- ``rounds``: ``end``, decoding seconds of the lane until the round's tokens stand; ``pieces``, the text of each token,
  of which the first ``accepted`` were proposed by a drafter, whose CSS class is ``kind``; ``about``, a line on it;
  ``step``, see ``tokens.step_of``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, zip_longest
from typing import Any

import gradio as gr

from multidraft.bench.action import listed
from multidraft.policies.specs import is_plain
from multidraft.policies.titles import policy_title
from multidraft.service.race import State
from multidraft.ui.widgets.markup import count, page, source, speedup_text, too_noisy
from multidraft.ui.widgets.tokens import arm_classes, describe_round, step_of
from storage.figures import SIDES, timed_side
from storage.run import Run

SPEEDS = (1.0, 0.5, 0.25, 0.1, 0.025)
"""What a viewer may choose."""

_STAGE, _SCRIPT = page("widgets/lanes.html", speeds=SPEEDS), source("widgets/lanes.js")

DIGITS = 6
"""Times are sent to the microsecond: finer than any clock behind them, and half the size."""


def stage(value: Any = None, *, elem_id: str) -> gr.HTML:
    """Where lanes are played; its value is what :func:`replay_data` or :func:`pending` makes, ``None`` shows nothing.

    The template holds no placeholder: data reach the page as the component's value, never as markup.
    """
    return gr.HTML(value, html_template=_STAGE, js_on_load=_SCRIPT, apply_default_css=False, elem_id=elem_id)


def pending(specs: Sequence[str], states: Sequence[State]) -> dict[str, Any]:
    """The data of a race whose lanes are still being measured."""
    lanes = [
        {"title": lane_title(spec), "state": state, "rounds": []} for spec, state in zip(specs, states, strict=True)
    ]
    return {"ready": False, "lanes": lanes}


def replay_data(runs: Sequence[Run], lasting: float = 0.0) -> dict[str, Any]:
    """The data of a race that was run; ``runs`` are its lanes, of which there are at least two.

    Args:
        lasting: seconds that it is to last at least, if one of :data:`SPEEDS` slows it so far.
    """
    generations = [run.generation for run in runs]
    seconds = max(g.seconds for g in generations)
    slow_enough = [speed for speed in SPEEDS if seconds / speed >= lasting]
    return {
        "ready": True,
        "seconds": round(seconds, DIGITS),
        "speed": max(slow_enough, default=min(SPEEDS)),
        "result": result(runs),
        "verdict": verdict(runs),
        "lanes": [_lane(run, place) for run, place in zip(runs, places(runs), strict=True)],
    }


def lane_title(spec: str) -> str:
    """The policy's readable name; autoregressive decoding is called so as well."""
    return policy_title(spec) + (" (autoregressive)" if is_plain(spec) else "")


def places(runs: Sequence[Run]) -> list[int]:
    """Finish order by decoding seconds, from 1; 0 for a lane that timings are too noisy to tell from another one."""
    behind = [[_behind(run, other) for other in runs if other is not run] for run in runs]
    return [0 if None in others else 1 + sum(map(bool, others)) for others in behind]


def _behind(run: Run, other: Run) -> bool | None:
    """Whether a lane finished after another one; ``None`` where one of them is too noisy and their intervals meet."""
    if any(lane.speedup and too_noisy(lane.speedup_uncertainty) for lane in (run, other)):
        (soonest, latest), (others_soonest, others_latest) = map(_reach, (run, other))
        return None if soonest <= others_latest and others_soonest <= latest else soonest > others_latest
    return run.generation.seconds > other.generation.seconds


def _reach(run: Run) -> tuple[float, float]:
    """The decoding seconds at the ends of the interval of its speed-up."""
    seconds, off = run.generation.seconds, run.speedup_uncertainty or 0.0
    return seconds / (1 + off), seconds / (1 - off) if off < 1 else math.inf


def result(runs: Sequence[Run]) -> str:
    """Which lanes need the fewest calls of the target, which no noise changes, then which is the fastest, and of which
    lanes the order is not known. Sampled lanes write texts of their own, so theirs are compared by tokens per call."""
    lanes = [run.generation for run in runs]
    calls, alike = [len(g.rounds) for g in lanes], len({len(g.token_ids) for g in lanes}) == 1
    yields = [g.mean_accepted_tokens for g in lanes]
    titles = [lane_title(g.policy) for g in lanes]
    first = [lane for lane, each in enumerate(yields) if each == max(yields)]
    who, needs = _named(titles, first), "need" if len(first) > 1 else "needs"
    if len(first) == len(lanes):
        said = "All lanes need equally many target calls."
    elif alike:
        tokens = count(len(lanes[0].token_ids), "token")
        said = f"{who} {needs} the fewest target calls ({min(calls)} for {tokens})."
    else:
        said = f"{who} {needs} the fewest target calls for its tokens ({max(yields):.2f} tokens per call)."
    order = places(runs)
    if alike and 1 in order:
        fastest = [lane for lane, place in enumerate(order) if place == 1]
        said += f" {_named(titles, fastest)} finished first, after {min(g.seconds for g in lanes):.2f} s of decoding."
    if not (unsure := [lane for lane, place in enumerate(order) if not place]):
        return said
    of = f"order of {_named(titles, unsure)}" if any(order) else "finish order"
    busy = f"The machine was too busy to tell the {of}; run it again."
    return " ".join(filter(None, (said, _certain(runs, titles, unsure), busy)))


def _named(titles: Sequence[str], chosen: Sequence[int]) -> str:
    """Some of the lanes by their titles, each once; where lanes share one, it says which lanes are meant."""
    names = []
    for title in dict.fromkeys(titles[lane] for lane in chosen):
        numbers = [str(lane + 1) for lane in chosen if titles[lane] == title]
        which = f"lane{'s' * (len(numbers) > 1)} {listed(numbers)}" if titles.count(title) > 1 else ""
        if which:
            title = f"{title[:-1]}, {which})" if title.endswith(")") else f"{title} ({which})"
        names.append(title)
    return listed(names)


def _certain(runs: Sequence[Run], titles: Sequence[str], unsure: Sequence[int]) -> str:
    """Which lanes are faster or slower than autoregressive decoding, whatever their order is; empty where none is."""
    sides = {
        lane: timed_side(runs[lane].speedup or 1.0, runs[lane].speedup_uncertainty or 0.0)
        for lane in unsure
        if not is_plain(runs[lane].generation.policy)  # its speed-up is 1 but for rounding
    }
    said = []
    for side, word in SIDES.items():
        if found := [lane for lane, own in sides.items() if own == side]:
            who = _named(titles, found) if len(found) < len(runs) else "Both lanes" if len(runs) == 2 else "All lanes"
            said.append(f"{who} {'is' if len(found) == 1 else 'are'} {word} than decoding without drafters.")
    return " ".join(said)


def verdict(runs: Sequence[Run]) -> dict[str, str]:
    """Whether the outputs of finished runs are the ``same``, token by token, or ``differ``; ``sampled`` ones cannot be
    compared, since each is a draw of its own."""
    if not all(run.params.greedy for run in runs):
        text = (
            "Sampled: every lane draws from exactly the same distribution, the target's own, so the texts may differ "
            "and so may their lengths. Compare tokens per second rather than who finishes first."
        )
        return {"kind": "sampled", "text": text}
    positions = enumerate(zip_longest(*(run.generation.token_ids for run in runs)))
    position = next((place for place, tokens in positions if len(set(tokens)) > 1), None)
    if position is None:
        outputs = "Both outputs" if len(runs) == 2 else f"All {len(runs)} outputs"
        text = f"{outputs} are identical, token by token ({count(len(runs[0].generation.token_ids), 'token')})."
        return {"kind": "same", "text": text}
    if all(run.scores.lossless for run in runs):
        why = (
            "There two tokens are near-ties for the target and rounding decided; every lane was checked and "
            "is the target's greedy choice within rounding."
        )
    else:
        why = (
            "A near-tie decided by rounding can do that, but the check did not confirm it for every lane. Please "
            "report it with this prompt."
        )
    return {"kind": "differ", "text": f"The outputs are NOT identical: they diverge at token {position + 1}. {why}"}


def _lane(run: Run, place: int) -> dict[str, Any]:
    g, kinds = run.generation, arm_classes(run.generation.drafters)
    rounds = [
        {
            "end": round(end, DIGITS),
            "kind": kinds[r.arm],
            "accepted": r.accepted,
            "pieces": r.pieces,
            "about": describe_round(r),
            "step": step_of(r),
        }
        for r, end in zip(g.rounds, accumulate(r.seconds for r in g.rounds), strict=True)
    ]
    return {
        "title": lane_title(g.policy),
        "place": place,
        "seconds": round(g.seconds, DIGITS),
        "prefill": round(g.prefill_seconds, DIGITS),
        "tokens": len(g.token_ids),
        "speedup": run.speedup and speedup_text(run.speedup, run.speedup_uncertainty),
        "request_speedup": run.request_speedup and speedup_text(run.request_speedup, run.speedup_uncertainty),
        "rounds": rounds,
    }
