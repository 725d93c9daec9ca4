"""γ by depth in greedy runs: multiplied along a draft it says exactly how far the draft is accepted."""

import numpy as np
import pytest
import torch

from drafters.base import Evidence, hits_by_depth
from drafters.draft import Draft
from drafters.models.teacher_forcing import accepted_prefixes
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
    hits = np.array([[True, True, True, False, True]])
    logs = np.log(np.array([[0.5, 0.5, 0.9, 1.0, 0.9]]))
    assert accepted_prefixes(hits, logs, np.array([-np.inf]), 4).tolist() == [[3, 2, 1, 0, 1]]
    # below 0.4 after two tokens of 0.5; 0.45 after 0.5 and 0.9 goes on
    assert accepted_prefixes(hits, logs, np.log([0.4]), 4).tolist() == [[2, 2, 1, 0, 1]]
    assert accepted_prefixes(hits, logs, np.log([0.6]), 4).tolist() == [[1, 1, 1, 0, 1]]
    assert accepted_prefixes(hits, logs, np.array([-np.inf]), 2).tolist() == [[2, 2, 1, 0, 1]]


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
