"""UCB, discounted, over a window (MetaSD Algs. 2, 6 and 8); UCBSpec and ``ucb-length`` (BanditSpec Alg. 4, §6.2)."""

import math

import numpy as np
import pytest

from drafters.errors import PolicyError
from multidraft.policies import NO_DRAFTER, Context, Feedback, make_policy

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


def test_discounted_index_against_the_formula():
    def index(t, r, ages):
        weights, rounds = 0.9**ages, (1 - 0.9 ** (t - 1)) / (1 - 0.9)
        return (weights @ r + 0.3 * math.sqrt(2 * math.log(rounds + 1) * weights.sum())) / weights.sum()

    check_index("d-ucb:beta=0.3,gamma=0.9", index)


def test_windowed_index_against_the_formula():
    def index(t, r, ages):
        r = r[ages < 10]
        return r.mean() + 0.3 * math.sqrt(2 * math.log(t) / len(r)) if len(r) else math.inf

    check_index("sw-ucb:beta=0.3,window=10", index)


def test_a_window_of_fewer_rounds_than_drafters_tries_all_of_them():
    arms = play(make_policy("sw-ucb:window=2,reward=be", 4), [0.0, 0.0, 0.0, 1.0], 40)
    assert arms[:5] == [0, 1, 2, 3, 3] and set(arms[5:]) == {0, 1, 2, 3}


@pytest.mark.parametrize("spec", ["d-ucb:beta=0.2", "sw-ucb:beta=0.2"])
def test_a_change_of_the_best_drafter_is_noticed_where_ucb_sleeps(spec):
    """Arm 0 is best for 150 rounds, then it turns bad and arm 1 good: who has switched 60 rounds later?"""
    shares = {}
    for name in (spec, "ucb:beta=0.2"):
        policy = make_policy(name, 2)
        play(policy, [1.0, 0.5], 150)
        shares[name] = play(policy, [0.5, 0.75], 60).count(1)
    assert shares[spec] > 30 > shares["ucb:beta=0.2"]


@pytest.mark.parametrize("beta", [0.01, 0.3, 2.0])
def test_no_discount_is_exactly_ucb(beta):
    """The same arms for the same rewards, near-ties among them."""
    rng = np.random.default_rng(1)
    policies = [make_policy(f"d-ucb:gamma=1,beta={beta}", 4), make_policy(f"ucb:beta={beta}", 4)]
    for _ in range(500):
        first, second = (policy.select() for policy in policies)
        assert first == second
        reward = float(rng.integers(0, 3)) / 4 + 0.01 * first
        for policy in policies:
            policy.update(seen(first, 1, reward))


@pytest.mark.parametrize("left", [1e-13, 0.0])
def test_a_faded_drafter_is_due_again(left):
    policy = make_policy("d-ucb:gamma=0.1", 2)
    assert 0 in play(policy, [0.25, 1.0], 40)[5:]
    policy.counts[0] = left  # what 0.1 ** 13 and 0.1 ** 400 come to
    assert policy.select() == 0


def play_lengths(policy, gamma, step, rounds, longest=6, seed=0):
    """Lengths played where each token is accepted with probability ``gamma`` and costs ``step`` target forwards."""
    rng = np.random.default_rng(seed)
    policy.begin(Context(draft_length=longest))
    lengths = []
    for _ in range(rounds):
        arm = policy.select()
        length = policy.draft_length(longest) if arm != NO_DRAFTER else 0
        accepted = int((np.cumprod(rng.random(length) < gamma)).sum())
        policy.update(Feedback(arm, length, accepted, accepted + 1, length, seconds=1.0 + step * length))
        lengths.append(length)
    return lengths


def test_every_length_is_tried_once_the_longest_first():
    assert play_lengths(make_policy("ucb-length", 2), 0.5, 0.1, 7) == [6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(("gamma", "step", "best"), [(0.95, 0.02, {5, 6}), (0.1, 0.3, {0}), (0.6, 0.15, {1, 2, 3})])
def test_the_fastest_length_wins(gamma, step, best):
    lengths = play_lengths(make_policy("ucb-length", 2), gamma, step, 1500)
    assert np.mean([length in best for length in lengths[-500:]]) > 0.8


@pytest.mark.parametrize("clock", [1.0, 100.0])
def test_index_by_hand(clock):
    """Rates 3/2, 2/4 and 1/4 relative to the largest, whatever the clock's unit, and ``sqrt(2 ln t / n)``, t = 4."""
    policy = make_policy("ucb-length:beta=0.5", 2)
    policy.begin(Context(draft_length=2))
    for length, seconds in ((2, 2.0), (1, 4.0), (0, 4.0)):
        assert policy.select() == (0 if length else NO_DRAFTER)
        policy.update(Feedback(0, length, length, length + 1, length, seconds=clock * seconds))
    assert policy.counts == [1, 1, 1] and policy.totals == pytest.approx([0.25 / clock, 0.5 / clock, 1.5 / clock])
    assert policy.index(0.75 / clock, 2) == pytest.approx(0.5 + 0.5 * math.sqrt(math.log(4)))


def test_rounds_that_nobody_timed_are_of_one_second_and_a_cut_draft_tells_of_its_own_length():
    policy = make_policy("ucb-length", 2)
    policy.begin(Context(draft_length=4))
    policy.update(Feedback(0, 2, 2, 3, 2))
    assert policy.totals == [0, 0, 3, 0, 0] and policy.last_reward == 1.0
    assert policy.select() == 0 and policy.draft_length(3) == 3 and policy.draft_length(9) == 4
    assert policy.uses_costs and list(policy.candidates()) == [0]


def test_one_named_drafter():
    policy = make_policy("ucb-length:drafter=code", ["math", "code"])
    assert policy.select() == 1 and list(policy.candidates()) == [1]
    with pytest.raises(PolicyError, match="no drafter 'poems'; choose one of: math, code"):
        make_policy("ucb-length:drafter=poems", ["math", "code"])
