"""The definition of every figure, on plain numbers: page, command line, report and database all use these.

Figures of several runs are ratios of totals, not means of ratios, so every second and every token counts the same. Each
distinct prompt counts once, with the mean of its runs: ten runs of one prompt weigh as much as one.

- decode speed-up: what the baseline needs for the tokens of all runs ÷ the decoding seconds of all runs,
- request speed-up: likewise with the prefill of target and drafters, routing and the first decision on both sides,
- tokens per second: tokens ÷ decoding seconds; mean accepted tokens (MAT): tokens ÷ rounds, the target's own tokens
  counted; acceptance rate: accepted ÷ drafted tokens,
- regret: rounds above those of the best fixed drafter (MetaSD Definition 1, BanditSpec Equation 1) ÷ runs,
- best-arm ratio: rounds that played the best fixed drafter of their text, or one as good ÷ rounds with a drafter, over
  all texts.

Their intervals come from a bootstrap over distinct prompts (:func:`ratio_of_totals`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

FEWEST_TOKENS = 8
"""Tokens that an answer needs for a speed-up: that of a shorter one depends on one or two steps, on any machine."""

LEAST = 1e-300
"""What a total of 0 counts as among logarithms."""

FEWEST_PROMPTS = 5
"""Distinct prompts that an interval needs."""

FEWEST_TO_TELL = 6
"""Common prompts that it takes to call one thing faster than another: with fewer not even a win on each of them
would be significant by a two-sided sign test."""

CONFIDENCE = 0.95

TOO_NOISY = 0.25
"""Half the width of a single run's interval, as a share of its speed-up, beyond which only the interval is told."""

SIDES = {1: "faster", -1: "slower"}
"""What is said of an interval by the side of 1 on which it lies; nothing of one that includes 1."""

POWER = 0.8
"""How likely a difference is to be found with as many prompts as :attr:`Ratio.prompts_to_settle` says."""

DRAWS = 2000
"""Bootstrap samples."""

MOST_BLOCKS = 500
"""Units that are resampled; more prompts are grouped at random into so many blocks of equal size, whose sums have
the same sampling variance as those of the prompts."""

Totals = tuple[Iterable[float], Iterable[float]]
"""Numerators and denominators."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of totals over so many distinct prompts, with its 95 % interval; ``None`` below ``FEWEST_PROMPTS``.

    Attributes:
        uncertainty: of too few prompts for an interval, by what share their timings alone may put it off
            (``Run.speedup_uncertainty``, the largest of the runs); ``None`` is unknown.
        comparisons: as one of how many its interval is; see :meth:`among`.
    """

    value: float
    low: float | None
    high: float | None
    prompts: int
    uncertainty: float | None = None
    comparisons: int = 1

    @property
    def interval(self) -> tuple[float, float] | None:
        """``(low, high)`` where both are known."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def side(self) -> int:
        """1 where it is above 1, -1 where it is below, at the 95 % level and on ``FEWEST_TO_TELL`` prompts or more; 0
        where that cannot be told. Whatever is called faster or slower anywhere, is so by this."""
        return _side(*self.interval) if self.interval and self.prompts >= FEWEST_TO_TELL else 0

    @property
    def side_shown(self) -> int:
        """1 or -1 where the interval that is shown, of too few prompts that of their timings, lies above or below 1."""
        if self.interval:
            return _side(*self.interval)
        return timed_side(self.value, self.uncertainty) if self.uncertainty else 0

    def among(self, comparisons: int) -> Ratio:
        """With the interval that it has as one of so many, all of which are right in 95 % of the cases (Bonferroni):
        wider, in logarithms, as Student's t is."""
        if not self.interval or not self.low or not self.value:
            return self
        usual, wide = stdtrit(self.prompts - 1, 1 - (1 - CONFIDENCE) / 2 / np.array([1, comparisons]))
        low, high = (self.value * float(end / self.value) ** float(wide / usual) for end in self.interval)
        return replace(self, low=low, high=high, comparisons=comparisons)

    @property
    def prompts_to_settle(self) -> float | None:
        """How many prompts in all it takes to tell it from 1, if it is what it is now: so many that a difference of
        this size is found at its level in ``POWER`` of the cases (Chow, Shao & Wang 2008, section 3.1).

        The interval's end towards 1 tells how far prompts differ, and comes nearer with the square root of their
        number. ``inf`` where there is no difference, ``None`` where there is no interval.
        """
        low, high = self.interval or (0.0, 0.0)
        if not low > 0:
            return None
        if self.value == 1:
            return float("inf")
        end = low if self.value > 1 else high
        level = 1 - (1 - CONFIDENCE) / 2 / self.comparisons
        reach = np.log(self.value / end) / np.log(self.value)
        reach *= (ndtri(level) + ndtri(POWER)) / stdtrit(self.prompts - 1, level)
        return float(max(np.ceil(self.prompts * reach**2), FEWEST_TO_TELL))

    @property
    def too_noisy(self) -> bool:
        """Whether timings vary too much for a single figure."""
        return not self.interval and too_noisy(self.uncertainty)

    def text(self, unit: str = "") -> str:
        """``2.10× (1.80–2.40)``, for ``unit="×"``; ``2.10× ± 0.15`` of few prompts, ``1.00×`` where nothing varies."""
        if self.interval and self.low != self.high:
            low, high = map(_end, self.interval)
            return f"{self.value:.2f}{unit} ({low}–{high})"
        return timed_text(self.value, self.uncertainty, unit)

    def of_runs(self, uncertainties: Iterable[float | None]) -> Ratio:
        """With what is known of its runs' timings, where there is no interval."""
        known = [share for share in uncertainties if share is not None]
        return self if self.interval or not known else replace(self, uncertainty=max(known))


def ratio_columns(name: str, ratio: Ratio | None) -> dict[str, float | int | None]:
    """A ratio with its interval and its prompts as columns; ``None`` is unknown."""
    value, low, high, prompts = (ratio.value, ratio.low, ratio.high, ratio.prompts) if ratio else (None, None, None, 0)
    return {name: value, f"{name}_low": low, f"{name}_high": high, f"{name}_prompts": prompts}


def _side(low: float, high: float) -> int:
    """1 where an interval is above 1, -1 where it is below, 0 where it includes 1."""
    return 1 if low > 1.0 else -1 if high < 1.0 else 0


def _end(value: float) -> str:
    """An end of an interval; with more digits where rounding would put it at 1, for it tells on which side it is."""
    shown = (f"{value:.{digits}f}" for digits in (2, 3, 4))
    return next((text for text in shown if float(text) != 1), f"{value:.2f}")


def too_noisy(uncertainty: float | None) -> bool:
    """Whether timings vary too much for a speed-up to be shown as one figure."""
    return uncertainty is not None and uncertainty > TOO_NOISY


SAYS_NOTHING = 0.5
"""Half the width of an interval that includes 1, as a share, beyond which neither end is shown."""


def timed_interval(value: float, uncertainty: float) -> tuple[float, float]:
    """The 95 % interval of a single run's speed-up."""
    return max(value * (1 - uncertainty), 0.0), value * (1 + uncertainty)


def timed_side(value: float, uncertainty: float) -> int:
    """1 where that interval is above 1, -1 where it is below, 0 where it includes 1."""
    return _side(*timed_interval(value, uncertainty))


def timed_short(value: float, uncertainty: float | None, unit: str = "") -> str:
    """``1.85× ± 0.11``; where that is too noisy, the interval alone, unless it says nothing either."""
    if uncertainty is None or not too_noisy(uncertainty):
        return f"{value:,.2f}{unit}" + (f" ± {value * uncertainty:.2f}" if uncertainty else "")
    if uncertainty > SAYS_NOTHING and not timed_side(value, uncertainty):
        return "too noisy"
    low, high = timed_interval(value, uncertainty)
    return f"{_end(low)}–{_end(high)}{unit}" if low else f"below {_end(high)}{unit}"


def timed_text(value: float, uncertainty: float | None, unit: str = "") -> str:
    """The same with the side in words where it is too noisy: ``faster: 1.20–2.90×``."""
    short = timed_short(value, uncertainty, unit)
    side = timed_side(value, uncertainty) if uncertainty and too_noisy(uncertainty) else 0
    return f"{SIDES[side]}: {short}" if side else short


def divided(numerator: float, denominator: float) -> float | None:
    """The ratio; ``None`` where there is nothing to divide by."""
    return numerator / denominator if denominator else None


def speedup(tokens: int, baseline_seconds: float, seconds: float) -> float | None:
    """How many times as fast as the baseline, which needs ``baseline_seconds`` for as many tokens, one answer was;
    ``None`` for answers of fewer than ``FEWEST_TOKENS``, and where nothing was measured."""
    if tokens < FEWEST_TOKENS or baseline_seconds <= 0 or seconds <= 0:
        return None
    return baseline_seconds / seconds


def ratio_of_totals(
    numerators: Iterable[float], denominators: Iterable[float], prompts: Iterable[object] | None = None
) -> Ratio | None:
    """``sum(numerators) / sum(denominators)`` over prompts, with its 95 % interval by a paired bootstrap over them.

    A prompt stands for all of its runs with their means: repeating it neither moves the value nor narrows the interval.
    Percentiles of the draws are widened for few prompts as Student's t is against the normal distribution.

    Args:
        prompts: what tells the prompt of each run; by default each has one of its own.

    Returns:
        ``None`` where the denominators add up to 0.

    Source: Efron & Tibshirani 1993, chapter 13; expanded percentiles: Hesterberg 2015, section 4.2.
    """
    return _resampled(_by_prompt((numerators, denominators), prompts))


def value_of_totals(
    numerators: Iterable[float], denominators: Iterable[float], prompts: Iterable[object]
) -> float | None:
    """The value of :func:`ratio_of_totals`, where nobody asks for its interval."""
    return divided(*_by_prompt((numerators, denominators), prompts).sum(axis=0).tolist())


def ratio_of_ratios(first: Totals, second: Totals) -> Ratio | None:
    """The second ratio of totals ÷ the first, both of the same prompts in the same order, as a ratio of speed-ups, with
    its interval likewise."""
    return _resampled(_by_prompt((*second, *reversed(first))))


def _resampled(sums: np.ndarray) -> Ratio | None:
    """The ratio of totals of prompts ``(prompts, 2)``, or the product of two, ``(prompts, 4)``, with its interval."""
    totals = sums.sum(axis=0)
    if not totals[1::2].all():
        return None
    value, count = float((totals[::2] / totals[1::2]).prod()), len(sums)
    if count < FEWEST_PROMPTS:
        return Ratio(value, None, None, count)
    if count > MOST_BLOCKS:
        order = np.random.default_rng(0).permutation(count)
        sums = np.stack([sums[block].sum(axis=0) for block in np.array_split(order, MOST_BLOCKS)])
    drawn = _weights(len(sums)).astype(float) @ sums  # products of integers would not go through the fast library
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (drawn[:, ::2] / drawn[:, 1::2]).prod(axis=1)
    t = stdtrit(count - 1, (1 + CONFIDENCE) / 2)
    tail = ndtr(-t * (count / (count - 1)) ** 0.5)
    ratios = ratios[np.isfinite(ratios)]
    if (ratios < 0).any():  # a mean, such as regret
        low, high = np.quantile(ratios, (tail, 1 - tail))
    else:  # logarithms: those of the inverse ratio are the same with the other sign; a total may be 0
        low, high = np.exp(np.quantile(np.log(ratios.clip(min=LEAST)), (tail, 1 - tail)))
        low = 0.0 if low < 2 * LEAST else low
    return Ratio(value, float(low), float(high), count)


def ranks(seconds: Mapping[str, Mapping[Any, float]]) -> dict[str, int]:
    """The rank of each policy by what it takes for the prompts, and first those of rank 1.

    Those that cannot be told from the first of a rank share it (:attr:`Ratio.side`, each pair on the prompts that both
    ran); the first of the others has the next rank, which counts all before it.

    Args:
        seconds: by prompt, of each policy; the policy that takes least comes first.
    """
    left, found = list(seconds), dict[str, int]()
    while left:
        first, rank = seconds[left[0]], len(found) + 1
        for name in left:
            common = [prompt for prompt in first if prompt in seconds[name]]
            slower = ratio_of_totals((seconds[name][p] for p in common), (first[p] for p in common))
            if name == left[0] or slower is None or slower.side != 1:
                found[name] = rank
        left = [name for name in left if name not in found]
    return found


def at_one_speed(
    runs: Mapping[str, Mapping[Any, tuple[float, float]]], plain: str = ""
) -> tuple[dict[Any, float], dict[str, dict[Any, float]]]:
    """What each policy takes for each prompt beside one baseline for all: where policies ran on different days, each
    has a baseline of its own, and the machine's speed on that day is not to tell them apart.

    Args:
        runs: of each policy, by prompt, the seconds of its baseline and its own.
        plain: the policy that drafts nothing, whose baselines count only where no other policy ran.

    Returns:
        the baseline's seconds by prompt, the mean of those of the policies, and each policy's own times what its
        baseline is off from that.
    """
    baselines: dict[Any, list[float]] = {}
    for policy in sorted(runs, key=lambda policy: policy == plain):
        for prompt, (baseline, _) in runs[policy].items():
            if policy != plain or prompt not in baselines:
                baselines.setdefault(prompt, []).append(baseline)
    usual = {prompt: sum(seconds) / len(seconds) for prompt, seconds in baselines.items()}
    scaled = {
        policy: {prompt: own / baseline * usual[prompt] for prompt, (baseline, own) in by_prompt.items()}
        for policy, by_prompt in runs.items()
    }
    return usual, scaled


def at_different_times(runs: Mapping[str, Mapping[Any, tuple[float, float]]], plain: str = "") -> bool:
    """Whether policies ran beside different baselines, so that :func:`at_one_speed` changes what they take."""
    first: dict[Any, float] = {}
    return any(
        abs(first.setdefault(prompt, baseline) / baseline - 1) > 0.001
        for policy, prompts in runs.items()
        for prompt, (baseline, _) in prompts.items()
        if policy != plain
    )


def _by_prompt(columns: Sequence[Iterable[float]], prompts: Iterable[object] | None = None) -> np.ndarray:
    """Means over the runs of each prompt: ``(distinct prompts, columns)``, in the order of their values: what is
    resampled, and so the interval, depends neither on the order in which runs are handed over nor on which of two is
    divided by the other."""
    pairs = np.stack([np.fromiter(column, float) for column in columns], axis=1)
    if prompts is None:
        return pairs[np.lexsort(np.sort(pairs).T)]
    places: dict[object, int] = {}
    index = [places.setdefault(prompt, len(places)) for prompt in prompts]
    if len(index) != len(pairs):
        raise ValueError(f"{len(pairs)} runs, but {len(index)} prompts")
    sums = np.zeros((len(places), len(columns)))
    np.add.at(sums, index, pairs)
    means = sums / np.bincount(index, minlength=len(places))[:, None]
    return means[np.lexsort(np.sort(means).T)]


@lru_cache(maxsize=8)
def _weights(count: int) -> np.ndarray:
    """How often each of ``count`` units is drawn in each bootstrap sample: uint16 ``(DRAWS, count)``."""
    chosen = np.random.default_rng(0).integers(count, size=(DRAWS, count))
    rows = np.arange(DRAWS)[:, None]
    return np.bincount((rows * count + chosen).ravel(), minlength=DRAWS * count).reshape(DRAWS, count).astype(np.uint16)
