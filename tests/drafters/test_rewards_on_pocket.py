"""BD against BE as a reward, on the bundled models (MetaSD Thm 1, Table 2)."""

import numpy as np
import pytest

from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from multidraft import generate
from multidraft.bench.suites import load_suite
from multidraft.policies.static import Fixed

pytestmark = pytest.mark.long  # it decodes all drafters on all tasks

TASKS = ("math", "sql", "code")
DRAFTERS = ("math", "sql", "code", "general")


class Watched(Fixed):
    """A fixed drafter whose rounds carry BD."""

    uses_block_divergence = True


@pytest.fixture(scope="module")
def rewards():
    """BE and BD of every full round, by task and drafter: arrays ``(rounds, 2)``."""
    pool = load_pool("pocket")
    for drafter in pool.drafters:
        drafter.log_confidence = -np.inf  # the theorem is about drafts of full length
    names = [drafter.name for drafter in pool.drafters]
    params = SamplingParams(90, draft_length=6)
    found = {}
    for task in TASKS:
        prompts = [item.prompt for item in load_suite("pocket").items if item.task == task][:4]
        for drafter in DRAFTERS:
            rounds = [r for p in prompts for r in generate(pool, p, Watched(names, drafter=drafter), params).rounds]
            pairs = [(r.block_efficiency, r.block_divergence) for r in rounds if r.draft_length == 6]
            found[task, drafter] = np.array(pairs)
    return found


def test_block_divergence_varies_less(rewards):
    """Thm 1: the variance of BD is the smaller one, but for drafters that are refused always: their BE is all zeros."""
    useful = [pairs for pairs in rewards.values() if pairs[:, 0].mean() > 0.2]
    assert len(useful) >= 5
    assert all(bd < be for be, bd in (pairs.var(axis=0) for pairs in useful))
    be, bd = np.mean([pairs.var(axis=0) for pairs in rewards.values()], axis=0)
    assert bd < be / 2


@pytest.mark.parametrize("task", TASKS)
def test_block_divergence_tells_the_specialist_apart_from_fewer_rounds(rewards, task):
    """Table 2: the gap between the best drafter and the others, in units of the reward's variance, is larger."""
    best = rewards[task, task]
    ratios = []
    for drafter in DRAFTERS:
        if drafter != task:
            gap = best.mean(axis=0) - rewards[task, drafter].mean(axis=0)
            ratios.append(gap / (best.var(axis=0) + rewards[task, drafter].var(axis=0)))
    be, bd = np.mean(ratios, axis=0)
    assert 0 < be < bd
