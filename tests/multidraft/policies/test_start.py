"""Warm starts: every policy that learns can begin with a guess instead of nothing."""

import numpy as np
import pytest

from multidraft import PolicyError, generate, make_policy
from multidraft.experience import Experience
from multidraft.policies import POLICIES
from multidraft.sampling import SamplingParams
from tests import tiny
from tests.engine_cases import pool_of

GUESS = [0.1, 0.2, 0.9, 0.3]
LEARNERS = sorted(name for name, kind in POLICIES.items() if kind.learns)
OTHERS = {"autoregressive", "draft-all", "fixed", "oracle", "random", "round-robin", "router", "ucb-length"}


def test_which_policies_learn():
    assert set(LEARNERS) == set(POLICIES) - OTHERS


def begun(spec, guess=GUESS, seed=0):
    policy = make_policy(spec, len(guess), seed)
    policy.previous, policy.route, policy.longest = guess, lambda prompt: guess, 6
    policy.begin("prompt")
    return policy


def share_of_best(spec, rounds=400):
    """How often the first choice is the guess's favourite, over seeds."""
    return np.mean([begun(spec, seed=seed).select() == 2 for seed in range(rounds)])


@pytest.mark.parametrize("start", ["router", "previous"])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_warm_start_prefers_the_favourite(name, start):
    cold, warm = share_of_best(f"{name}:start=cold", 60), share_of_best(f"{name}:start={start}", 60)
    deterministic = name in ("ucb", "ucbspec", "d-ucb", "sw-ucb", "kl-ucb", "rate-hedge", "normal-hedge")
    assert (
        warm == 1.0 if deterministic else warm > cold or cold == warm == 0.0
    )  # halving: first round of the next phase
    if name not in ("sh", "petc"):
        assert warm > cold


@pytest.mark.parametrize("name", LEARNERS)
def test_without_a_guess_a_warm_start_is_a_cold_one(name):
    warm, cold = make_policy(f"{name}:start=previous", 4, 3), make_policy(f"{name}:start=cold", 4, 3)
    warm.begin("p")
    cold.begin("p")
    assert [warm.select() for _ in range(5)] == [cold.select() for _ in range(5)]


@pytest.mark.parametrize("name", LEARNERS)
def test_unknown_start_is_refused_with_the_valid_ones(name):
    with pytest.raises(PolicyError, match="cold, router, previous"):
        make_policy(f"{name}:start=hot", 4)


@pytest.mark.parametrize("name", sorted(OTHERS - {"fixed"}))
def test_policies_that_do_not_learn_take_no_start(name):
    with pytest.raises(PolicyError, match="has no setting 'start'"):
        make_policy(f"{name}:start=router", 4)


def test_experience_of_bandits_and_of_full_information():
    bandit = Experience(3)
    assert bandit.means() is None
    bandit.add(0, 0.5, None)
    bandit.add(0, 1.0, None)
    bandit.add(2, 0.25, None)
    bandit.add(-1, 0.0, None)
    assert bandit.means() == [0.75, 0.5, 0.25]
    assert Experience(3, [0.1, 0.2, 0.3]).means() == [0.1, 0.2, 0.3]
    bandit.before = [0.1, 0.2, 0.3]
    assert bandit.means() == [0.75, 0.2, 0.25]
    bandit.add(1, 1.0, np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 1.0]]))
    assert bandit.means() == [0.5, 0.0, 0.75]


def test_a_query_leaves_its_experience_to_the_next_one_under_the_same_policy():
    pool = pool_of(tiny.llama(1))
    params = SamplingParams(max_new_tokens=24, draft_length=3)
    first = generate(pool, [3, 1, 4], "ucb:start=previous", params)
    assert pool.previous.keys() == {"ucb:start=previous"}
    known = pool.previous["ucb:start=previous"]
    second = generate(pool, [3, 1, 4], "ucb:start=previous", params)
    assert [r.arm for r in first.rounds[:3]] == [0, 1, 2]
    assert second.rounds[0].arm == known.index(max(known))
    assert second.token_ids == first.token_ids
