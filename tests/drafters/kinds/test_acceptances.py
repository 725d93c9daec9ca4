"""The table of drafts over a finished text holds the drafts that would really have been made there, for every kind."""

import numpy as np
import pytest
import torch

from drafters.sampling import SamplingParams
from drafters.tree import acceptances_of
from multidraft import generate
from multidraft.replay.regret import acceptance_table
from tests import kinds, tiny

LENGTH = 4


@pytest.fixture(scope="module")
def pool(kinds_card):
    return kinds.load(kinds_card)


@pytest.fixture(scope="module")
def text(pool):
    prompt = tiny.prompts(1, seed=3, shortest=6, longest=6)[0]
    return prompt, generate(pool, prompt, "autoregressive", SamplingParams(24)).token_ids


@pytest.fixture(scope="module")
def table(pool, text):
    prompt, output = text
    return pool.acceptances([*prompt, *output], len(prompt), LENGTH)


@pytest.mark.parametrize("name", kinds.NAMES)
def test_the_table_holds_accepted_tokens_depth_and_nodes_of_real_drafts(pool, text, table, name):
    prompt, output = text
    row = [drafter.name for drafter in pool.drafters].index(name)
    drafter, context = pool.drafters[row], [*prompt, *output]
    drafter.prepare(prompt)
    params = SamplingParams(draft_length=LENGTH)
    drafts = [drafter.propose(context[:s], LENGTH, params, torch.Generator()) for s in range(len(prompt), len(context))]
    real = acceptances_of(drafts, context, len(prompt), LENGTH)
    if drafter.kind != "lookahead":  # its window depends on the rounds played; the table counts full columns
        np.testing.assert_array_equal(table.accepted[row], real.accepted)
        np.testing.assert_array_equal(table.drafted[row], real.drafted)
        np.testing.assert_array_equal(table.nodes[row], real.nodes)
    assert (table.nodes[row] >= table.drafted[row]).all() and (table.drafted[row] >= table.accepted[row]).all()


def test_the_public_table_is_the_accepted_tokens(pool, text, table):
    np.testing.assert_array_equal(acceptance_table(pool, *text, LENGTH), table.accepted)
