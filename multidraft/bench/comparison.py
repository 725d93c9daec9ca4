"""Two experiments compared, policy by policy, paired by prompt: another version, pool, machine or setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from drafters.errors import UserError
from multidraft.bench.summary import Row, grouped, mean, speedups
from multidraft.bench.table import count
from multidraft.replay.options import Option
from storage.figures import FEWEST_TO_TELL, FEWEST_TOKENS, Ratio, Totals, ratio_of_ratios, ratio_of_totals, too_noisy
from storage.records import PLAIN

NAMES = {
    "version": "version",
    "pool": "pool",
    "card_hash": "pool card",
    "hardware": "machine",
    "dtype": "dtype",
    "draft_length": "draft length",
    "temperature": "temperature",
    "top_p": "top-p",
    "top_k": "top-k",
    "max_new_tokens": "max new tokens",
    "streams": "texts at once",
    "suite": "suite",
}
"""What experiments may differ in, and what it is called."""

EQUAL = 1.05
"""Where the 95 % level puts one at most so many times as fast as the other, either will do."""

SETTLED, ALIKE, NO_DIFFERENCE = ("faster", "slower"), "equal within 5 %", "no significant difference"
"""What is certain of an experiment, at the 95 % level, and what is said where nothing is."""

TOO_FEW = "too few prompts to say"

_TAKEN = ("seconds", "request_seconds", "tokens", "rounds")
"""What an option takes of a row."""


@dataclass(frozen=True)
class Paired:
    """One policy in both experiments, or the fastest of each, on the prompts that both ran.

    Attributes:
        specs: of the first and of the second; mostly the same.
        rounds: tokens per round of the second ÷ those of the first: it depends on no clock.
        decode, request: how many times as fast the second is by the clock, in decoding and in the whole request.
        speedups: of whole requests, of each over its own baseline.
        relative: that of the second ÷ that of the first, which tells the policy from the machine's speed; ``None``
            where a baseline is unknown.
        short: of the prompts that both ran, those whose answers are too short for a speed-up.
        same_rounds: whether both took as many rounds for as many tokens on each prompt.
        repeated: in A and in B, on how many prompts it began with what that very prompt had taught.
    """

    specs: tuple[str, str]
    rounds: Ratio
    decode: Ratio
    request: Ratio
    speedups: tuple[Ratio | None, Ratio | None]
    relative: Ratio | None
    short: int
    same_rounds: bool
    repeated: tuple[int, int]

    @property
    def name(self) -> str:
        """The policy, or both."""
        one, other = (f"`{spec}`" for spec in self.specs)
        return one if one == other else f"{other} of B against {one} of A"

    @property
    def judged(self) -> Ratio:
        """What the verdict is on; with an interval for all policies together (``Ratio.among``)."""
        return self.relative or self.request

    @property
    def said(self) -> str:
        """Whether whole requests are faster in B, at the 95 % level, over its own baseline if that is known."""
        if self.judged.prompts < FEWEST_TO_TELL:
            return TOO_FEW
        low, high = self.judged.interval or (0.0, EQUAL + 1)
        usual = ALIKE if low >= 1 / EQUAL and high <= EQUAL else NO_DIFFERENCE
        return {1: "faster", -1: "slower"}.get(self.judged.side, usual)

    @property
    def verdict(self) -> str:
        """The same in words that say what of B is: its speed-up where the verdict is on that."""
        if self.relative and self.said in SETTLED:
            return "higher speed-up" if self.said == "faster" else "lower speed-up"
        return self.said

    @property
    def on(self) -> str:
        """How many prompts both ran, and how many of them the verdict is on."""
        every, fewer = count(self.request.prompts, "prompt"), self.request.prompts - self.judged.prompts
        if not fewer:
            return f"on {every} that both ran"
        why = f" ({count(self.short, 'answer')} too short for one)" if self.short == fewer else ""
        return f"on {every} that both ran, {self.judged.prompts} with a speed-up{why}"


@dataclass(frozen=True)
class Comparison:
    """Experiment B compared with A.

    Attributes:
        differs: what they were made with, where that differs, as ``(name, in A, in B)``.
        pairs: the policies in both.
        baseline: how many times as fast autoregressive decoding was in B, on the prompts that both ran, if it is known.
        seconds_apart: between the beginnings of both, if they are known.
        noisy: how many of the runs compared are too noisy for a speed-up of their own, and of how many.
    """

    differs: list[tuple[str, str, str]]
    pairs: list[Paired]
    baseline: Ratio | None
    seconds_apart: float | None = None
    noisy: tuple[int, int] = (0, 0)

    @classmethod
    def of(
        cls, first: Sequence[Row], second: Sequence[Row], made: tuple[Mapping[str, Any], Mapping[str, Any]]
    ) -> Comparison:
        """Of the rows of both, and what they were made with, by the keys of ``NAMES``, and when, as ``created_at``.

        Raises:
            UserError: no finished run of one of them was timed alone, or they have no prompt in common.
        """
        timed = [
            [row for row in rows if row.finished and row.tokens_per_second and row.tokens] for rows in (first, second)
        ]
        if not all(timed):
            which = "the first" if not timed[0] else "the second"
            raise UserError(f"{which} result has no finished run that was timed alone, so there is nothing to compare")
        common = {row.prompt for row in timed[0]} & {row.prompt for row in timed[1]}
        if not common:
            raise UserError("the two results have no prompt in common; run the same suite in both")
        a, b = ([row for row in rows if row.prompt in common] for rows in timed)
        in_a, in_b = (grouped([row for row in rows if row.policy != PLAIN], "policy") for rows in (a, b))
        specs = [(spec, spec) for spec in in_a if spec in in_b]
        if not specs and in_a and in_b:
            specs = [(_fastest(in_a), _fastest(in_b))]
        pairs = [pair for one, other in specs if (pair := _paired(in_a[one], in_b[other], (one, other)))]
        # One measure for all; the more policies, the more often one of them would seem to differ by chance.
        if all(pair.relative for pair in pairs):
            pairs = [replace(pair, relative=pair.relative and pair.relative.among(len(pairs))) for pair in pairs]
        else:
            pairs = [replace(pair, relative=None, request=pair.request.among(len(pairs))) for pair in pairs]
        pairs.sort(key=lambda pair: (pair.said not in SETTLED, -pair.judged.value))
        unused = () if any(each.get("temperature") for each in made) else ("top_p", "top_k")
        unlike = [key for key in NAMES if made[0].get(key) != made[1].get(key) and key not in unused]
        if "pool" in unlike:  # which says why its card differs, too
            unlike = [key for key in unlike if key != "card_hash"]
        differs = [(NAMES[key], _shown(made[0].get(key)), _shown(made[1].get(key))) for key in unlike]
        if not pairs:
            raise UserError("no policy ran on a prompt in both experiments, so there is nothing to compare")
        begun = [datetime.fromisoformat(each["created_at"]) for each in made if "created_at" in each]
        apart = abs((begun[1] - begun[0]).total_seconds()) if len(begun) == 2 else None
        names = [{pair.specs[side] for pair in pairs} for side in (0, 1)]
        compared = [row for rows, own in zip((a, b), names, strict=True) for row in rows if row.policy in own]
        noisy = sum(too_noisy(row.speedup_uncertainty) for row in compared)
        return cls(differs, pairs, _baselines(a, b), apart, (noisy, len(compared)))


def _fastest(runs: Mapping[str, Sequence[Row]]) -> str:
    """The policy with the most tokens per second of whole requests."""
    return max(runs, key=lambda spec: mean(runs[spec], "tokens") / mean(runs[spec], "request_seconds"))


def _paired(first: Sequence[Row], second: Sequence[Row], specs: tuple[str, str]) -> Paired | None:
    common = {row.prompt for row in first} & {row.prompt for row in second}
    if not common:
        return None
    a, b = (
        sorted((row for row in rows if row.prompt in common), key=lambda row: row.prompt) for rows in (first, second)
    )
    lengths = _by_prompt(a, "tokens")
    same = all(_by_prompt(a, name) == _by_prompt(b, name) for name in ("tokens", "rounds"))
    seen = tuple(len({row.prompt for row in rows if row.repeated}) for rows in (a, b))
    one, other = _as_long(specs[0], a, lengths), _as_long(specs[1], b, lengths)
    rounds = ratio_of_totals(one.rounds, other.rounds)
    assert rounds is not None, "a finished run has a round"
    faster, known = other.times_as_fast(one), [{r.prompt for r in rows if r.speedup} for rows in (a, b)]
    short = {row.prompt for row in (*a, *b) if row.tokens < FEWEST_TOKENS}
    a, b = ([row for row in rows if row.prompt in known[0] & known[1] and row.speedup] for rows in (a, b))
    relative = ratio_of_ratios(_requests(a), _requests(b)) if a else None
    return Paired(
        specs,
        rounds,
        other.times_as_fast(one, "decode"),
        faster,
        (speedups(a)[1], speedups(b)[1]),
        relative,
        len(short),
        same,
        (seen[0], seen[1]),
    )


def _requests(rows: Sequence[Row]) -> Totals:
    """Seconds of whole requests by prompt: the baseline's, and those of the runs."""
    return _by_prompt(rows, "baseline_request_seconds").values(), _by_prompt(rows, "request_seconds").values()


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
    return {prompt: mean(runs, name) for prompt, runs in grouped(rows, "prompt").items()}


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, (int, float)) else str(value)
