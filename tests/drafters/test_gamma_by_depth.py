"""γ by depth in greedy runs: multiplied along a draft it says exactly how far the draft is accepted."""

import numpy as np
import pytest
import torch

from drafters.base import Evidence, hits_by_depth
from drafters.draft import Draft
from drafters.models.teacher_forcing import by_depth
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from drafters.tree import gamma_of_drafts
from multidraft.engine.decoding import generate
from tests import tiny

LENGTH = 5
GREEDY = SamplingParams(draft_length=LENGTH)


def reached(gamma):
    """How many tokens of the draft begun at each position are accepted, from γ ``(m, K)`` of zeros and ones."""
    m, depths = gamma.shape
    lengths = []
    for begin in range(m):
        row = [gamma[begin + depth, depth] for depth in range(min(depths, m - begin))]
        lengths.append(int(np.cumprod(row).sum()))
    return lengths


def test_hits_by_depth_are_read_off_the_acceptance_table():
    hits = hits_by_depth(np.array([[3, 0, 2, 1], [0, 5, 0, 0]]), 3)
    assert hits.shape == (4, 3, 2)
    assert hits[:, :, 0].tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 1], [1, 1, 0]]
    assert reached(hits[:, :, 0]) == [3, 0, 2, 1]
    assert reached(hits[:, :, 1]) == [0, 3, 0, 0]


def test_drafts_end_where_confidence_ends():
    hits = np.array([[1.0, 1.0, 1.0, 0.0, 1.0]])
    logs = np.append(np.log([[0.5, 0.5, 0.9]]), [[-np.inf, np.log(0.9)]], axis=1)

    def accepted(confidence, length):
        with np.errstate(divide="ignore"):
            gamma = by_depth(hits, logs, np.log([confidence]), length)
        assert gamma.shape == (5, length, 1) and set(gamma.flat) == {0.0, 1.0}
        return reached(gamma[..., 0])

    assert accepted(0.0, 4) == [3, 2, 1, 0, 1]
    assert accepted(0.4, 4) == [2, 2, 1, 0, 1], "below 0.4 after two tokens of 0.5; 0.45 after 0.5 and 0.9 goes on"
    assert accepted(0.6, 4) == [1, 1, 1, 0, 1]
    assert accepted(0.0, 2) == [2, 2, 1, 0, 1]


def test_of_sampled_drafts_the_overlap_counts_as_far_as_they_go():
    overlaps = np.array([[0.9, 0.5, 0.2], [0.3, 0.6, 0.7]])
    logs = np.log([[0.5, 0.7, 0.1], [0.9, 0.1, 0.8]])
    gamma = by_depth(overlaps, logs, np.log([0.4, 0.2]), 3)
    assert gamma[..., 0].tolist() == [[0.9, 0, 0], [0.5, 0.5, 0], [0.2, 0.2, 0]], "0.5 goes on, 0.35 does not"
    assert gamma[..., 1].tolist() == [[0.3, 0, 0], [0.6, 0.6, 0], [0.7, 0, 0]]


def test_gamma_of_drafts_follows_the_text_from_where_each_began():
    context = [9, 1, 2, 3, 4]  # the positions 3 and 4 are evaluated
    drafts = [Draft.chain([2, 3, 5]), Draft((3, 7, 4), (-1, -1, 0)), Draft.chain([4])]  # begun at 2, 3 and 4
    params = SamplingParams(draft_length=3)
    gamma = gamma_of_drafts(drafts, Evidence(context, 3, None, params))
    assert gamma.tolist() == [[1, 1, 0], [1, 1, 0]]  # 5 is no hit at depth 2
    p = torch.full((2, 10), 0.05)
    p[0, 3], p[1, 4], p[1, 5] = 0.5, 0.3, 0.2
    sampled = gamma_of_drafts(drafts, Evidence(context, 3, p, SamplingParams(temperature=1.0, draft_length=3)))
    assert sampled == pytest.approx(np.array([[0.55, 0.5, 0], [0.3, 0.3, 0.2]]))


def test_every_kind_says_by_depth_what_its_drafts_do(kinds_card):
    pool = load_pool(kinds_card)
    ids = pool.encode(tiny.texts(1, 11, 3)[0])
    out = generate(pool, ids, "autoregressive", SamplingParams(24, draft_length=LENGTH))
    context = [*ids, *out.token_ids]
    for start in (len(ids), len(ids) + 7):
        gamma = pool.gamma(Evidence(context, start, None, GREEDY))
        table = pool.acceptances(context, start, LENGTH).accepted
        assert gamma.shape == (len(context) - start, LENGTH, len(pool.drafters))
        for column, drafter in enumerate(pool.drafters):
            expected = np.minimum(table[column], len(context) - start - np.arange(table.shape[1]))
            found = np.array(reached(gamma[..., column]))
            assert found.tolist() == expected.tolist(), drafter.name
