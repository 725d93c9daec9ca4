"""UCB (MetaSD Alg. 2) and UCBSpec (BanditSpec Alg. 4)."""

import math

import numpy as np
import pytest

from multidraft.policies import Feedback, make_policy

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


def check_index(spec, index):
    """Each round plays the arm of the largest ``index(t, rewards, ages)``, of its rewards and how many rounds ago each
    was; before it has any, the index is infinite."""
    rng, policy, history = np.random.default_rng(5), make_policy(spec, 3), []
    for t in range(1, 200):
        arms, rewards = np.array(history).reshape(-1, 2).T
        ages = np.arange(t - 1)[::-1]
        due = [index(t, rewards[arms == arm], ages[arms == arm]) if arm in arms else math.inf for arm in range(3)]
        arm = policy.select()
        assert arm == int(np.argmax(due)), t
        accepted, divergence = int(rng.binomial(K, 0.2 + 0.2 * arm)), float(rng.uniform(0, 0.5) + 0.2 * arm)
        policy.update(seen(arm, accepted, divergence))
        assert policy.last_reward == (divergence if policy.uses_block_divergence else accepted / K)
        history.append((arm, policy.last_reward))


def test_ucb_index_against_the_formula():
    check_index("ucb:beta=0.3", lambda t, r, ages: r.mean() + 0.3 * math.sqrt(2 * math.log(t) / len(r)))


def test_ucbspec_index_against_the_formula():
    def index(t, r, ages):
        n = len(r)
        radius = K / 2 * math.sqrt((1 + n) / n**2 * (1 + 2 * math.log(3 * math.sqrt(1 + n) / 0.2)))
        return (1 + K * r).mean() + radius  # of tokens emitted

    check_index("ucbspec:delta=0.2", index)


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
