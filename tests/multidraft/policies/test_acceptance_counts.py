"""Counts that fade: by letting later ones weigh more, which nobody outside can tell."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multidraft.policies.acceptance_counts import AcceptanceCounts

DRAFTERS, K = 3, 4
SHARES = st.sampled_from([1.0, 0.9, 0.25, 1e-60])
ROUNDS = st.lists(st.tuples(st.integers(0, DRAFTERS - 1), st.integers(1, K), st.integers(0, K), SHARES), max_size=12)


@given(ROUNDS)
def test_they_are_those_of_plain_arrays(rounds):
    """The last factor makes the weight of a count of now run over within a few rounds."""
    counts = AcceptanceCounts(DRAFTERS, K)
    trials, hits = np.zeros((2, DRAFTERS, K + 1))
    for drafter, drafted, accepted, share in rounds:
        accepted = min(accepted, drafted)
        counts.fade(share)
        trials, hits = trials * share, hits * share
        counts.add_draft(drafter, drafted, accepted, K)
        trials[drafter, : min(accepted + 1, K)] += 1.0
        hits[drafter, :accepted] += 1.0
        trials[drafter, -1] += min(drafted, K - 1)
        hits[drafter, -1] += drafted - 1
        assert 1.0 <= counts.unit <= counts.OVERFLOW
    assert counts.trials == pytest.approx(trials, rel=1e-9, abs=1e-30)
    assert counts.hits == pytest.approx(hits, rel=1e-9, abs=1e-30)


def test_counts_of_one_drafter_and_of_one_depth():
    counts = AcceptanceCounts(2, 2)
    counts.fade(0.5)
    counts.add(1, [4.0, 2.0], [3.0, 0.0], 0.5)
    counts.keep(0, 0.25)
    assert counts.trials.tolist() == [[0.0, 0.5, 0.0], [0.0, 1.0, 0.0]]
    assert counts.hits.tolist() == [[0.0, 0.375, 0.0], [0.0, 0.0, 0.0]]


def test_a_share_too_small_for_a_number_forgets_instead_of_failing():
    counts = AcceptanceCounts(1, 2)
    counts.add_draft(0, 2, 1, 2)
    counts.fade(0.0)
    assert counts.trials.max() < 1e-90
