"""Uncertainty of measured times: it covers what noise does, and leaves out what is work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from storage.clock import BLOCKS, FEWEST_BLOCKS, uncertainty
from storage.run import Baseline
from tests.runs import make_generation, make_round, make_run


def times(work: np.ndarray, rng: np.random.Generator, busy: float) -> np.ndarray:
    """Forwards on a machine that something else slows down by half for stretches of some forwards on end."""
    on = np.zeros(len(work), dtype=bool)
    for place in range(1, len(work)):
        on[place] = rng.random() < (0.8 if on[place - 1] else busy)
    return work * np.where(on, 1.5, 1.0) * rng.normal(1.0, 0.02, len(work))


@pytest.mark.parametrize("busy", [0.0, 0.05])
def test_intervals_of_ratios_cover_what_would_be_measured_in_the_long_run(busy):
    rng = np.random.default_rng(0)
    plain, nodes = 2.0 + 0.002 * np.arange(128), rng.integers(0, 13, 30)
    drafted = 2.2 + 0.1 * nodes
    slower = 1.0 + 0.5 * busy / (busy + 0.2)  # in the long run
    covered = []
    for _ in range(200):
        sides = [(zip(np.zeros(128), times(plain, rng, busy)), plain), (zip(nodes, times(drafted, rng, busy)), drafted)]
        off, strayed = 0.0, 1.0
        for measured, work in sides:
            rows = [(float(of), float(seconds)) for of, seconds in measured]
            off = np.hypot(off, uncertainty(rows))
            strayed = sum(seconds for _, seconds in rows) / (slower * work.sum()) / strayed
        covered.append(abs(strayed - 1) <= off)
    assert np.mean(covered) >= 0.9


@pytest.mark.parametrize("tokens", [2 * FEWEST_BLOCKS, 2 * BLOCKS - 1])
def test_a_short_answer_has_an_interval_that_covers(tokens):
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(300):
        took = times(np.full(tokens, 2.0), rng, busy=0.0)
        rounds = [make_round(i, nodes=0, verify_seconds=float(s), tokens=(9,)) for i, s in enumerate(took)]
        baseline = Baseline.of(make_generation(rounds=rounds), "answer")
        covered.append(abs(took.sum() / (2.0 * tokens) - 1) <= baseline.uncertainty)
    assert np.mean(covered) >= 0.9


def test_work_and_growing_contexts_are_no_noise():
    rng = np.random.default_rng(1)
    nodes = rng.integers(0, 13, 40)
    rows = [(float(of), 1.0 + 0.2 * of + 0.01 * place) for place, of in enumerate(nodes)]
    assert uncertainty(rows) < 1e-6
    assert uncertainty([(0.0, 1.0)] * (2 * BLOCKS - 1)) is None
    assert uncertainty([(0.0, 0.0)] * 2 * BLOCKS) is None


def test_a_stall_makes_a_sum_uncertain():
    quiet = [(0.0, 1.0)] * 64
    assert uncertainty(quiet) < 1e-6
    assert uncertainty([*quiet, (0.0, 200.0)]) > 1.0


def test_a_stall_makes_a_short_run_uncertain():
    even = [make_round(index, verify_seconds=0.006) for index in range(8)]
    stalled = [*even[:-1], replace(even[-1], verify_seconds=0.04)]
    calm, hit = (
        make_run(rounds=rounds, baseline=Baseline("prefix", 24, 0.005, 0.002, 0.02)).speedup_uncertainty
        for rounds in (even, stalled)
    )
    assert calm and hit and calm < 0.05 and hit > 0.15


def test_a_speedup_is_as_uncertain_as_both_sides():
    run = make_run(baseline=Baseline("answer", 9, 0.01, 0.0, 0.03))
    rounds = [replace(run.generation.rounds[0], nodes=0, verify_seconds=s) for s in (1.0, 1.1) * 8]
    run.generation.rounds = rounds
    of_run = run.generation.uncertainty
    assert run.speedup_uncertainty == pytest.approx(np.hypot(of_run, 0.03))
    run.generation.rounds = [replace(rounds[0], draft_seconds=0.0, verify_seconds=0.0225, policy_seconds=0.0)]
    short = 0.03 * np.hypot(2.0, 1.0)  # a quarter of the baseline's time: twice its error
    assert run.speedup_uncertainty == pytest.approx(short, rel=0.05)
    run.baseline = replace(run.baseline, uncertainty=None)
    assert run.speedup_uncertainty is None
