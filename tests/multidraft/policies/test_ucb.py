"""UCB (MetaSD Alg. 2) and UCBSpec (BanditSpec Alg. 4)."""

import math

import numpy as np
import pytest

from multidraft.policies import Context, Feedback, make_policy

K = 4


def seen(arm, accepted, block_divergence=None, drafted=K, draft_length=K):
    return Feedback(arm, drafted, accepted, accepted + 1, draft_length, block_divergence)


def play(policy, accepted_by_arm, rounds, rng=None):
    """Arms played when arm ``i`` accepts ``Binomial(K, p_i)`` tokens, or exactly ``K p_i`` without ``rng``."""
    arms = []
    for _ in range(rounds):
        arm = policy.select()
        share = accepted_by_arm[arm]
        accepted = int(rng.binomial(K, share)) if rng else round(K * share)
        policy.update(seen(arm, accepted, accepted / K))
        arms.append(arm)
    return arms


@pytest.mark.parametrize("name", ["ucb", "ucbspec"])
def test_each_arm_is_tried_once_in_order_and_ties_go_to_the_first(name):
    policy = make_policy(name, 4)
    assert play(policy, [0.5] * 4, 4) == [0, 1, 2, 3]
    assert policy.select() == policy.select() == 0
    assert policy.probabilities() is None


def test_ucb_by_hand():
    # beta = 1, two arms of constant BE 0.5 and 0.25. Index of arm i in round t: mean + sqrt(2 ln t / n).
    # t=3: 0.5+sqrt(2 ln 3)=1.982, 0.25+1.482=1.732 -> 0;  t=4: 0.5+sqrt(ln 4)=1.677, 0.25+1.665=1.915 -> 1
    # t=5: 0.5+sqrt(ln 5)=1.769, 0.25+1.269=1.519 -> 0;    t=6: 0.5+sqrt(2 ln 6/3)=1.593, 0.25+1.339=1.589 -> 0
    # t=7: 0.5+sqrt(2 ln 7/4)=1.486, 0.25+sqrt(ln 7)=1.645 -> 1
    assert play(make_policy("ucb:beta=1,reward=be", 2), [0.5, 0.25], 7) == [0, 1, 0, 1, 0, 0, 1]


def test_ucb_index_against_the_formula():
    rng = np.random.default_rng(5)
    policy = make_policy("ucb:beta=0.3", 3)
    history = {arm: [] for arm in range(3)}
    for t in range(1, 200):
        arm = policy.select()
        if t > 3:
            index = [np.mean(h) + 0.3 * math.sqrt(2 * math.log(t) / len(h)) for h in history.values()]
            assert arm == int(np.argmax(index))
        reward = float(rng.uniform(0, 0.5) + 0.2 * arm)
        policy.update(seen(arm, 1, reward))
        assert policy.last_reward == reward
        history[arm].append(reward)


def test_ucb_learns_from_the_reward_it_was_told_to():
    for reward, expected in (("bd", 0.9), ("be", 0.25)):
        policy = make_policy(f"ucb:reward={reward}", 2)
        assert policy.uses_block_divergence == (reward == "bd")
        policy.update(seen(0, 1, 0.9))
        assert policy.last_reward == expected


def test_ucbspec_index_against_the_formula():
    rng = np.random.default_rng(6)
    policy = make_policy("ucbspec:delta=0.2", 3)
    history = {arm: [] for arm in range(3)}
    for t in range(1, 200):
        arm = policy.select()
        if t > 3:
            index = []
            for h in history.values():
                n = len(h)
                radius = K / 2 * math.sqrt((1 + n) / n**2 * (1 + 2 * math.log(3 * math.sqrt(1 + n) / 0.2)))
                index.append(np.mean(h) + radius)
            assert arm == int(np.argmax(index))
        accepted = int(rng.binomial(K, 0.2 + 0.3 * arm))
        policy.update(seen(arm, accepted))
        assert policy.last_reward == accepted / K  # (y - 1) / K
        history[arm].append(accepted + 1)


def test_ucbspec_radius_by_hand():
    # K=4, N=2, delta=0.1, n=3: 2 * sqrt(4/9 * (1 + 2 ln(2*2/0.1))) = 2 * sqrt(4/9 * 8.377759) = 3.859248
    policy = make_policy("ucbspec", 2)
    policy.update(seen(0, 1))
    assert policy.index(0.0, 3) == pytest.approx(3.859248, abs=1e-6)
    assert policy.totals == [2.0, 0.0]  # the own token counts: y = A + 1
    assert policy.t == 1


def test_ucbspec_keeps_its_radius_when_the_last_draft_is_cut_short():
    policy = make_policy("ucbspec", 2)
    policy.update(seen(0, 1))
    before = policy.index(0.0, 3)
    policy.update(seen(1, 1, drafted=1, draft_length=1))
    assert policy.index(0.0, 3) == before
    assert policy.last_reward == 1.0


@pytest.mark.parametrize("name", ["ucb", "ucb:reward=be", "ucbspec"])
def test_nothing_to_propose_is_a_pull_of_reward_zero(name):
    policy = make_policy(name, 2)
    policy.update(Feedback(0, drafted=0, accepted=0, emitted=1, draft_length=K))
    assert policy.last_reward == 0.0
    assert policy.counts == [1, 0]
    policy.update(seen(1, 2, 0.5))
    assert policy.select() == 1


@pytest.mark.parametrize("name", ["ucb", "ucb:reward=be", "ucbspec"])
def test_the_best_arm_is_found(name):
    arms = play(make_policy(name, 4), [0.2, 0.3, 0.9, 0.4], 2000, np.random.default_rng(1))
    assert arms[-500:].count(2) > 450


@pytest.mark.parametrize("name", ["ucb", "ucbspec"])
def test_reset_forgets(name):
    policy = make_policy(name, 3)
    first = play(policy, [0.25, 0.75, 0.5], 30)
    policy.begin(Context("another query"))
    assert policy.last_reward is None
    assert play(policy, [0.25, 0.75, 0.5], 30) == first
