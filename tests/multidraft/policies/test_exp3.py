"""EXP3 (MetaSD Alg. 7) and EXP3Spec (BanditSpec Alg. 5)."""

import math
from collections import Counter

import numpy as np
import pytest

from multidraft.policies import Context, make_policy
from multidraft.policies.exp3 import DrawnArm, sample_arm
from multidraft.policies.rewards import AlignmentBandit
from tests.multidraft.policies.test_ucb import K, play, seen


def played(policy, shares, rounds):
    return play(policy, shares, rounds, np.random.default_rng(0))


def test_exp3_by_hand():
    # N=2, gamma=0.4, reward 1 for arm 0 at P=0.5: w_0 = exp(0.4 * 2 / 2) = e^0.4, P_0 = 0.6 e^0.4/(e^0.4+1) + 0.2
    policy = make_policy("exp3:reward=be", 2)
    assert policy.probabilities() == [0.5, 0.5]
    policy.update(seen(0, K))
    first = 0.6 * math.exp(0.4) / (math.exp(0.4) + 1) + 0.2
    assert policy.probabilities() == pytest.approx([first, 1 - first], abs=1e-15)
    assert first == pytest.approx(0.5592, abs=1e-4)


def test_exp3_against_the_formula():
    rng = np.random.default_rng(2)
    policy = make_policy("exp3:gamma=0.3", 3, seed=8)
    weights = np.ones(3)
    for _ in range(200):
        expected = 0.7 * weights / weights.sum() + 0.1
        assert policy.probabilities() == pytest.approx(expected.tolist(), abs=1e-12)
        arm, reward = policy.select(), float(rng.random())
        policy.update(seen(arm, 1, reward))
        assert policy.last_reward == reward
        weights[arm] *= math.exp(0.3 * (reward / expected[arm]) / 3)


def test_exp3_weights_do_not_overflow():
    policy = make_policy("exp3:gamma=1,reward=be", 2)
    for _ in range(5000):  # log-weight 5000, far beyond the 709 of a double's exponential
        policy.update(seen(0, K))
    assert policy.probabilities() == [0.5, 0.5]
    policy = make_policy("exp3:reward=be", 2)
    for _ in range(20000):
        policy.update(seen(0, K))
    assert policy.probabilities() == pytest.approx([0.8, 0.2])


def test_exp3spec_by_hand():
    # N=2, arm 0 emits 1 of 5 tokens at P=0.5: estimate (5-1)/4/0.5 = 2, eta_2 = sqrt(ln 2/(2*2)),
    # P_0 = e^(-2 eta) / (1 + e^(-2 eta))
    policy = make_policy("exp3spec", 2)
    policy.update(seen(0, 0))
    odds = math.exp(-2 * math.sqrt(math.log(2) / 4))
    assert policy.probabilities() == pytest.approx([odds / (1 + odds), 1 / (1 + odds)], abs=1e-15)


def test_exp3spec_against_the_formula():
    rng = np.random.default_rng(3)
    policy = make_policy("exp3spec", 3, seed=9)
    estimates = np.zeros(3)
    for t in range(1, 200):
        weights = np.exp(-math.sqrt(math.log(3) / (t * 3)) * estimates)
        expected = weights / weights.sum()
        assert policy.probabilities() == pytest.approx(expected.tolist(), abs=1e-12)
        arm, accepted = policy.select(), int(rng.integers(0, K + 1))
        policy.update(seen(arm, accepted))
        assert policy.last_reward == accepted / K
        estimates[arm] += (K + 1 - (accepted + 1)) / (K * expected[arm])


@pytest.mark.parametrize("name", ["exp3", "exp3spec"])
def test_probabilities_sum_to_one_and_are_those_of_select(name):
    policy = make_policy(name, 4, seed=1)
    played(policy, [0.1, 0.9, 0.5, 0.3], 40)
    p = policy.probabilities()
    assert sum(p) == pytest.approx(1, abs=1e-12)
    assert max(p) - min(p) > 0.05  # it has learnt something, so the frequencies below tell arms apart
    counts = Counter(policy.select() for _ in range(6000))
    assert [counts[arm] / 6000 for arm in range(4)] == pytest.approx(p, abs=0.025)


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        # The guess of a reward r is counted as gamma r / P / N and as -(1 - r) / P at P = 1/2, whoever came first.
        ("exp3:gamma=0.3,start=previous", [0.3 * 0.25, 0.3 * 0.75]),
        ("exp3spec:start=previous", [-2 * 0.75, -2 * 0.25]),
    ],
)
def test_a_guess_counts_as_one_round_of_each_drafter_at_the_chance_that_it_had(name, scores):
    policy = make_policy(name, 2)
    policy.begin(Context(draft_length=K, previous=[0.25, 0.75]))
    assert policy.scores == pytest.approx(scores)
    assert policy.t == 2


def test_classes_that_draw_an_arm_can_be_combined_with_others_in_any_order():
    class Mixed(DrawnArm, AlignmentBandit):
        name = "mixed"

    policy = Mixed(["a", "b"])
    assert policy.p == [0.5, 0.5] and policy.uses_block_divergence


@pytest.mark.parametrize(
    ("name", "arms"),
    [("exp3:reward=be", [0, 0, 2, 0, 1, 2, 0, 0, 0, 1]), ("exp3spec", [0, 1, 2, 0, 1, 2, 1, 0, 1, 2])],
)
def test_exact_arms(name, arms):
    """Arms from the formulas and the first ten uniform numbers of seed 2, worked out apart from the code."""
    policy, played = make_policy(name, 3, seed=2), []
    for _ in range(10):
        played.append(policy.select())
        policy.update(seen(played[-1], [1, 4, 2][played[-1]]))
    assert played == arms


class Always:
    """A generator whose next uniform number is known."""

    def __init__(self, number):
        self.number = number

    def random(self):
        return self.number


@pytest.mark.parametrize(("number", "arm"), [(0.0, 1), (0.24, 1), (0.26, 3), (0.999999, 3)])
def test_the_number_falls_into_the_interval_of_its_arm(number, arm):
    assert sample_arm([0.0, 0.25, 0.0, 0.75], Always(number)) == arm


def test_a_gap_left_by_rounding_goes_to_the_likeliest_arm():
    assert sample_arm([0.2, 0.79, 0.0], Always(0.995)) == 1


def test_arms_are_drawn_as_often_as_they_are_probable():
    rng = np.random.default_rng(0)
    counts = Counter(sample_arm([0.5, 0.3, 0.2], rng) for _ in range(6000))
    assert [counts[arm] / 6000 for arm in range(3)] == pytest.approx([0.5, 0.3, 0.2], abs=0.025)
