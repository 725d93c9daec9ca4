"""Replayed seconds against measured ones, on a bench of the pocket pool recorded on a quiet machine."""

import pytest

from multidraft.replay.recorded import is_estimate
from tests.perf.replay_clock import FIXED, OTHERS, measure


@pytest.fixture(scope="module")
def lines(bench_db):
    return {policy: line for (_, policy), line in measure(bench_db).items()}


def test_priced_seconds_are_the_measured_ones(lines):
    off = {policy: line.priced / line.measured - 1 for policy, line in lines.items()}
    assert len(off) == 10
    assert {p: o for p, o in off.items() if abs(o) > (FIXED if p.startswith("fixed") else OTHERS)} == {}


def test_replayed_rates_of_policies_that_ignore_the_clock_are_the_measured_ones(lines):
    exact = {policy: line for policy, line in lines.items() if not is_estimate(policy)}
    assert len(exact) == 8
    for policy, line in exact.items():
        assert line.same == line.runs, policy
        assert abs(line.measured / line.replayed - 1) < (FIXED if policy.startswith("fixed") else OTHERS), policy


def test_the_default_policy_is_replayed_at_its_rate(lines):
    line = lines["rate-hedge:start=router"]  # it chooses by the clock, so its rounds are not the recorded ones
    assert abs(line.measured / line.replayed - 1) < OTHERS
