"""Two experiments compared, policy by policy and prompt by prompt: another version, pool, machine or setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from drafters.errors import UserError
from multidraft.bench.action import MOST_PROMPTS
from multidraft.bench.measure import BASELINE
from multidraft.bench.summary import Row, speedups
from multidraft.bench.table import NOTHING, count, percent
from multidraft.bench.verdict import MOST_NAMED, Table, times
from multidraft.replay.options import Option
from storage.figures import FEWEST_TO_TELL, Ratio, prompts_to_settle, ratio_of_ratios, ratio_of_totals

NAMES = {
    "version": "version",
    "pool": "pool",
    "card_hash": "pool card",
    "hardware": "machine",
    "dtype": "dtype",
    "draft_length": "draft length",
    "temperature": "temperature",
    "max_new_tokens": "max new tokens",
    "streams": "texts at once",
    "suite": "suite",
}
"""What experiments may differ in, and what it is called."""


SETTLED, NO_DIFFERENCE = ("faster", "slower"), "no significant difference"
"""What is certain of an experiment, at the 95 % level, and what is said where nothing is."""

_TAKEN = ("seconds", "request_seconds", "tokens", "rounds")
"""What an option takes of a row."""


@dataclass(frozen=True)
class Paired:
    """One policy in both experiments, or the fastest of each, on the prompts that both ran.

    Attributes:
        specs: of the first and of the second; mostly the same.
        rounds: tokens per round of the second ÷ those of the first: it depends on no clock.
        decode, request: how many times as fast the second is by the clock, in decoding and in the whole request.
        speedups: decode speed-up of each over its own baseline.
        relative: that of the second ÷ that of the first, which tells the policy from the machine's speed; ``None``
            where a baseline is unknown.
        settled_by: how many prompts in all would tell them apart, if what is found is true.
    """

    specs: tuple[str, str]
    rounds: Ratio
    decode: Ratio
    request: Ratio
    speedups: tuple[Ratio | None, Ratio | None]
    relative: Ratio | None
    settled_by: float | None

    @property
    def name(self) -> str:
        """The policy, or both."""
        one, other = (f"`{spec}`" for spec in self.specs)
        return one if one == other else f"{other} of B against {one} of A"

    @property
    def judged(self) -> Ratio:
        """What the verdict is on."""
        return self.relative or self.decode

    @property
    def said(self) -> str:
        """Whether B is faster in decoding, at the 95 % level, over its own baseline if that is known."""
        if self.judged.prompts < FEWEST_TO_TELL:
            return "too few prompts to say"
        return {1: "faster", -1: "slower"}.get(self.judged.side, NO_DIFFERENCE)


@dataclass(frozen=True)
class Comparison:
    """Experiment B compared with A.

    Attributes:
        differs: what they were made with, where that differs, as ``(name, in A, in B)``.
        pairs: the policies in both.
        baseline: how many times as fast autoregressive decoding was in B, on the prompts that both ran, if it is known.
    """

    differs: list[tuple[str, str, str]]
    pairs: list[Paired]
    baseline: Ratio | None

    @classmethod
    def of(
        cls, first: Sequence[Row], second: Sequence[Row], made: tuple[Mapping[str, Any], Mapping[str, Any]]
    ) -> Comparison:
        """Of the rows of both, and what they were made with, by the keys of ``NAMES``.

        Raises:
            UserError: no finished run of one of them was timed alone, or they have no prompt in common.
        """
        timed = [
            [row for row in rows if row.finished and row.tokens_per_second and row.tokens] for rows in (first, second)
        ]
        if not all(timed):
            which = "the first" if not timed[0] else "the second"
            raise UserError(
                f"{which} experiment has no finished run that was timed alone, so there is nothing to compare"
            )
        common = {row.prompt for row in timed[0]} & {row.prompt for row in timed[1]}
        if not common:
            raise UserError("the two experiments have no prompt in common; run the same suite in both")
        a, b = ([row for row in rows if row.prompt in common] for rows in timed)
        ran = [list(dict.fromkeys(row.policy for row in rows if row.policy != BASELINE)) for rows in (a, b)]
        specs = [(spec, spec) for spec in ran[0] if spec in ran[1]]
        if not specs and all(ran):
            specs = [(_fastest(a), _fastest(b))]
        pairs = [pair for one, other in specs if (pair := _paired(_of(a, one), _of(b, other), (one, other)))]
        if not all(pair.relative for pair in pairs):  # one measure for all
            pairs = [replace(pair, relative=None) for pair in pairs]
        pairs.sort(key=lambda pair: (pair.said not in SETTLED, -pair.judged.value))
        differs = [
            (name, _shown(made[0].get(key)), _shown(made[1].get(key)))
            for key, name in NAMES.items()
            if made[0].get(key) != made[1].get(key)
        ]
        if not pairs:
            raise UserError("no policy ran on a prompt in both experiments, so there is nothing to compare")
        return cls(differs, pairs, _baselines(a, b))


def sentences(found: Comparison) -> list[str]:
    """The verdict, the conclusion first; names of policies stand in backticks."""
    apart = bool(found.baseline and found.baseline.side)
    quick = f"Autoregressive decoding itself is {times(found.baseline)} as fast in B"
    said = []
    if apart:
        judged = "so the verdicts compare speed-ups, each over its own autoregressive decoding"
        judged = judged if found.pairs[0].relative else "which the verdicts, by the clock, do not allow for"
        said.append(f"The machine, or the target's own decoding, was not equally fast in both. {quick}, {judged}.")
    said += [_conclusion(pair) for pair in found.pairs[:MOST_NAMED]]
    if more := len(found.pairs[MOST_NAMED:]):
        said.append(f"The table has {count(more, 'more policy')}.")
    if found.differs:
        said.append(
            "They differ in " + "; ".join(f"{name} ({one} → {other})" for name, one, other in found.differs) + "."
        )
    else:
        said.append("They were made with the same settings, version, pool and machine: what differs is chance.")
    if found.baseline and not apart:
        said.append(f"{quick}, which is no significant difference.")
    return [*said, "Intervals: 95 %, paired bootstrap over the prompts that both ran."]


def table(found: Comparison) -> Table:
    """A line for each policy."""
    columns = "policy|verdict on B|prompts|speed-up in A|speed-up in B|speed-up, B over A"
    columns += "|tokens per round, B over A|decode by the clock, B over A|request by the clock, B over A"
    rows = [
        (
            pair.name.replace("`", ""),
            pair.said,
            str(pair.decode.prompts),
            *(map(times, (*pair.speedups, pair.relative, pair.rounds, pair.decode, pair.request))),
        )
        for pair in found.pairs
    ]
    return Table("Policies", tuple(columns.split("|")), rows, 7)


def _conclusion(pair: Paired) -> str:
    on = f"on {count(pair.judged.prompts, 'prompt')} that both ran"
    clock = f"decoding is {times(pair.decode)} and whole requests are {times(pair.request)} as fast"
    if pair.said == "too few prompts to say":
        return f"{pair.name}: {on}, and to call one faster takes {FEWEST_TO_TELL}; by the clock {clock} so far."
    fewer = 1 - 1 / pair.rounds.value
    calls = "as many" if abs(fewer) < 0.005 else f"{percent(abs(fewer))} {'fewer' if fewer > 0 else 'more'}"
    speeds = f"{clock}, with {calls} calls of the target, {on}"
    if pair.relative:
        a, b = (f"{ratio.value:.2f}×" if ratio else NOTHING for ratio in pair.speedups)
        speeds = (
            f"the decode speed-up is {b} in B and {a} in A, {times(pair.relative)} as high, with {calls} calls of the "
            f"target, {on}; by the clock {clock}"
        )
    if pair.said != NO_DIFFERENCE:
        return f"{pair.name}: B is {pair.said}; {speeds}."
    needed = pair.settled_by
    more = (
        "Either will do"
        if needed is None or needed > MOST_PROMPTS
        else f"About {count(max(round(needed) - pair.judged.prompts, 1), 'more prompt')} would settle it"
    )
    return f"{pair.name}: {NO_DIFFERENCE}; {speeds}. {more}."


def _of(rows: Sequence[Row], spec: str) -> list[Row]:
    return [row for row in rows if row.policy == spec]


def _fastest(rows: Sequence[Row]) -> str:
    """The policy with the most tokens per second, autoregressive decoding apart."""
    specs = dict.fromkeys(row.policy for row in rows if row.policy != BASELINE)
    return max(
        specs, key=lambda spec: sum(r.tokens for r in _of(rows, spec)) / sum(r.seconds or 0 for r in _of(rows, spec))
    )


def _paired(first: Sequence[Row], second: Sequence[Row], specs: tuple[str, str]) -> Paired | None:
    common = {row.prompt for row in first} & {row.prompt for row in second}
    if not common:
        return None
    a, b = (
        sorted((row for row in rows if row.prompt in common), key=lambda row: row.prompt) for rows in (first, second)
    )
    lengths = _by_prompt(a, "tokens")
    one, other = _as_long(specs[0], a, lengths), _as_long(specs[1], b, lengths)
    rounds = ratio_of_totals(one.rounds, other.rounds)
    assert rounds is not None, "a finished run has a round"
    faster, known = other.times_as_fast(one, "decode"), [{r.prompt for r in rows if r.speedup} for rows in (a, b)]
    a, b = ([row for row in rows if row.prompt in known[0] & known[1] and row.speedup] for rows in (a, b))
    over = [tuple(_by_prompt(rows, name) for name in ("baseline_seconds", "seconds")) for rows in (a, b)]
    relative = ratio_of_ratios(*((list(above.values()), list(below.values())) for above, below in over)) if a else None
    needed = prompts_to_settle(one.decode, other.decode * faster.value / relative.value) if relative else None
    return Paired(
        specs,
        rounds,
        faster,
        other.times_as_fast(one),
        (speedups(a)[0], speedups(b)[0]),
        relative,
        needed if relative else other.prompts_to_settle(one),
    )


def _as_long(spec: str, rows: Sequence[Row], lengths: Mapping[int, float]) -> Option:
    """An experiment's runs of a policy, in seconds and rounds for answers of these lengths; both may differ."""
    runs = [(row.prompt, *(getattr(row, name) / row.tokens * lengths[row.prompt] for name in _TAKEN)) for row in rows]
    return Option.of(spec, 0, runs)


def _baselines(first: Sequence[Row], second: Sequence[Row]) -> Ratio | None:
    """What autoregressive decoding took in A ÷ in B, for the answers of A."""
    a, b = ([row for row in rows if row.baseline_seconds] for rows in (first, second))
    lengths, one, other = _by_prompt(a, "tokens"), _each_token(a), _each_token(b)
    common = [prompt for prompt in one if prompt in other]
    if not common:
        return None
    return ratio_of_totals(*([seconds[p] * lengths[p] for p in common] for seconds in (one, other)))


def _each_token(rows: Sequence[Row]) -> dict[int, float]:
    """Seconds of the baseline for a token, by prompt."""
    seconds, tokens = _by_prompt(rows, "baseline_seconds"), _by_prompt(rows, "tokens")
    return {prompt: seconds[prompt] / tokens[prompt] for prompt in seconds}


def _by_prompt(rows: Sequence[Row], name: str) -> dict[int, float]:
    """The mean over the runs of each prompt."""
    found: dict[int, list[float]] = {}
    for row in rows:
        found.setdefault(row.prompt, []).append(getattr(row, name))
    return {prompt: sum(values) / len(values) for prompt, values in found.items()}


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, (int, float)) else str(value)
