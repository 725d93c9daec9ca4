"""What measured times say: what a piece of work costs, and how far its measurement may be off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls
from scipy.special import stdtrit

from storage.figures import CONFIDENCE

OUTLIER = 3.0
"""A measurement of more than so many times what is expected counts as that much: a hiccup of the machine is not a
property of the model."""

BLOCKS = 6
"""Stretches of equally many measurements whose means are compared: long ones, so that they are independent."""

FEWEST_BLOCKS = 4
"""Likewise of short baselines, whose interval is wider for it."""


def fit(rows: Sequence[tuple[float, ...]], units: int) -> np.ndarray:
    """Non-negative coefficients ``(units,)`` by which the last number of each row follows from those before it.

    By least squares in which outliers (``OUTLIER``) are cut; zeros where there are no rows.
    """
    if not rows:
        return np.zeros(units)
    table = np.asarray(rows, dtype=np.float64)
    work, seconds = table[:, :units], table[:, units]
    allowed = np.minimum(seconds, OUTLIER * 10 * np.median(seconds))
    for _ in range(10):
        coefficients: np.ndarray = nnls(work, allowed)[0]
        cut = np.minimum(seconds, OUTLIER * (work @ coefficients))
        if np.array_equal(cut, allowed):
            break
        allowed = cut
    return coefficients


def stalled(forwards: Sequence[tuple[float, float]]) -> float:
    """Seconds of hiccups: what single forwards took beyond ``OUTLIER`` times the median."""
    seconds = np.array([seconds for _, seconds in forwards])
    return float(np.maximum(seconds - OUTLIER * np.median(seconds), 0.0).sum()) if len(seconds) else 0.0


def uncertainty(forwards: Sequence[tuple[float, float]], blocks: int = BLOCKS) -> float | None:
    """How far the sum of measured times may be off, because other work on the machine slows it down or lets it go:
    half the width of its 95 % interval ÷ the sum.

    What each time should be follows from its work (:func:`fit`) and its place, as later forwards read a longer context.
    Whatever slows a machine down does so for many forwards on end, so single ones are not independent: the run is cut
    into ``blocks`` stretches, and the spread of measured ÷ expected among these is what counts (method of batch means,
    with one degree of freedom less for the growth with the place).

    Args:
        forwards: nodes and seconds of each, in the order in which they were measured.

    Returns:
        ``None`` for fewer than two forwards in each stretch, and where they took no time.

    Source: Schmeiser 1982, Batch size effects in the analysis of simulation output, section 1.
    """
    if len(forwards) < 2 * blocks:
        return None
    work = [(1.0, nodes, float(place)) for place, (nodes, _) in enumerate(forwards)]
    seconds = np.array([seconds for _, seconds in forwards])
    expected = np.array(work) @ fit([(*of, took) for of, took in zip(work, seconds.tolist(), strict=True)], 3)
    block = np.arange(len(seconds)) * blocks // len(seconds)
    measured, due = np.bincount(block, seconds), np.bincount(block, expected)
    if not due.sum():
        return None
    astray = measured - due * (measured.sum() / due.sum())
    degrees = blocks - 2
    error = np.sqrt(blocks / degrees * np.sum(astray**2)) / measured.sum()
    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2) * error)
