"""NormalHedge on full information (HedgeSpec Fig. 7, B.5)."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.errors import PolicyError
from multidraft.policies import Context, Feedback, make_policy
from multidraft.policies.delayed import expected_accept_lengths
from multidraft.policies.hedge import solve_exponent

K = 4


def by_depth(gamma):
    """``(m, K, N)``: the acceptance ``(m, N)`` at all depths."""
    return np.repeat(np.asarray(gamma, float)[:, None], K, axis=1)


def seen(gamma, arm=0, accepted=2):
    return Feedback(arm, K, accepted, accepted + 1, K, gamma=None if gamma is None else by_depth(gamma))


def normal_hedge(losses):
    """HedgeSpec Fig. 7 as printed, c by bisection; returns the distribution before each row and after all."""
    n = losses.shape[1]
    regrets, p = np.zeros(n), np.full(n, 1 / n)
    steps = [p]
    for row in losses:
        regrets = regrets + p @ row - row
        positive = np.maximum(regrets, 0)
        if positive.max() <= 0:
            p = np.full(n, 1 / n)
        else:
            low, high = positive.max() ** 2 / (2 * (1 + math.log(n))), positive.max() ** 2 / 2
            for _ in range(200):
                c = (low + high) / 2
                # too small a c makes the mean too large
                low, high = (c, high) if np.exp(positive**2 / (2 * c)).mean() > math.e else (low, c)
            weights = positive / c * np.exp(positive**2 / (2 * c))
            p = weights / weights.sum()
        steps.append(p)
    return steps


def feed(policy, gamma):
    policy.update(seen(gamma))
    return policy.probabilities()


def test_first_steps_by_hand():
    # Two arms, losses (0, 1): R = (0.5, -0.5), all on arm 0. Then (1, 0): f_A = 1, R = (0.5, 0.5): even again.
    policy = make_policy("normal-hedge:loss=acceptance", 2)
    assert policy.probabilities() == [0.5, 0.5]
    assert feed(policy, [[1.0, 0.0]]) == [1.0, 0.0]
    assert feed(policy, [[0.0, 1.0]]) == [0.5, 0.5]
    # (0, 0.2): f_A = 0.1, R = (0.6, 0.4); s = (1, 4/9); (e^x + e^(4x/9))/2 = e at x = 1.2966761
    x = 1.2966761
    odds = math.exp(x) / (2 / 3 * math.exp(4 / 9 * x))
    assert feed(policy, [[1.0, 0.8]]) == pytest.approx([odds / (1 + odds), 1 / (1 + odds)], abs=1e-7)


@pytest.mark.parametrize("count", [1, 2, 8, 10_000])
def test_root_in_closed_form(count):
    # One positive regret: (e^x + N - 1)/N = e. All equal: x = 1.
    # With 10,000 arms the first Newton step from 1 would leave the bracket, and a double's range.
    for start in (1.0, 1.0 + math.log(count)):
        assert solve_exponent([1.0], count, start) == pytest.approx(math.log(count * (math.e - 1) + 1), abs=1e-9)
        assert solve_exponent([1.0] * count, count, start) == pytest.approx(1.0, abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=20), st.integers(0, 10), st.floats(0, 1))
def test_root_from_any_start(others, without, where):
    squares = [1.0, *others]
    count = len(squares) + without
    x = solve_exponent(squares, count, 1.0 + where * math.log(count))
    assert (without + sum(math.exp(x * s) for s in squares)) / count == pytest.approx(math.e, rel=1e-9)
    assert 1 - 1e-9 <= x <= 1 + math.log(count) + 1e-9


@pytest.mark.parametrize("arms", [2, 3, 8])
def test_against_the_printed_algorithm(arms):
    rng = np.random.default_rng(arms)
    gamma = rng.random((150, arms))
    policy = make_policy("normal-hedge:loss=acceptance", arms)
    for row, expected in zip(gamma, normal_hedge(1 - gamma)[1:], strict=True):
        assert feed(policy, row[None]) == pytest.approx(expected.tolist(), abs=1e-9)


@pytest.mark.parametrize("span", [0, 6])
def test_length_losses_against_the_printed_algorithm(span):
    """Whatever batches they come in, as each follows the one before."""
    gamma = np.random.default_rng(7).random((60, 3))
    policy = make_policy(f"normal-hedge:loss=length,span={span}", 3)
    for batch in np.split(gamma, [1, 3, 9, 30]):
        policy.update(seen(batch, accepted=len(batch) - 1))
    losses = 1 - expected_accept_lengths(by_depth(gamma), K) / (K + 1)
    assert policy.probabilities() == pytest.approx(normal_hedge(losses)[-1].tolist(), abs=1e-9)


def test_hybrid_starts_on_acceptance_and_goes_on_with_every_length_loss():
    gamma = np.random.default_rng(8).random((12, 3))
    policy = make_policy("normal-hedge:loss=hybrid", 3)
    for batch in np.split(gamma, [2, 3, 5]):  # the third batch completes the first length losses
        policy.update(seen(batch))
    early = 1 - by_depth(gamma[:3])[:, 0]
    late = 1 - expected_accept_lengths(by_depth(gamma), K) / (K + 1)
    assert policy.probabilities() == pytest.approx(normal_hedge(np.vstack([early, late]))[-1].tolist(), abs=1e-9)


def test_length_waits_where_hybrid_already_knows():
    for loss, best in (("length", 1 / 3), ("hybrid", 1.0), ("acceptance", 1.0)):
        policy = make_policy(f"normal-hedge:loss={loss}", 3)
        assert feed(policy, [[0.9, 0.1, 0.2]] * (K - 1))[0] == pytest.approx(best)


def test_batches_do_not_change_what_is_learnt():
    gamma = np.random.default_rng(9).random((40, 4))
    one_by_one, at_once = make_policy("normal-hedge", 4), make_policy("normal-hedge", 4)
    for row in gamma:
        feed(one_by_one, row[None])
    assert feed(at_once, gamma) == one_by_one.probabilities()


def test_equal_drafters_stay_equal():
    policy = make_policy("normal-hedge", 3)
    assert feed(policy, np.full((50, 3), 0.7)) == pytest.approx([1 / 3] * 3)
    assert feed(make_policy("normal-hedge", 4), [[0.5] * 4]) == [0.25] * 4  # no regret is positive


@pytest.mark.parametrize("scale", [1e-200, 1e-12, 1.0])
def test_tiny_differences_count_as_much_as_large_ones(scale):
    policy = make_policy("normal-hedge", 2)
    for _ in range(20):
        policy.learn([0.0, scale])
    assert policy.probabilities()[0] > 0.99


@pytest.mark.parametrize(
    ("spec", "evaluated"),
    [
        ("normal-hedge:loss=acceptance", [1, 2, 3, 4, 5, 6, 18, 30]),
        ("normal-hedge:loss=hybrid,warmup=2,every=3", [1, 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 32]),
        ("normal-hedge:game=chunk,warmup=0,every=10", [10, 20, 30]),
        ("normal-hedge:warmup=0,every=10", [10, 20, 30]),
        ("normal-hedge:loss=acceptance,every=1", list(range(1, 33))),
    ],
)
def test_evaluation_is_skipped_after_the_warm_up(spec, evaluated):
    policy, rounds = make_policy(spec, 2), []
    for number in range(1, 33):
        policy.select()
        if policy.wants_evaluation(1):
            rounds.append(number)
        policy.update(seen(None))
    assert rounds == evaluated


def test_of_positions_between_two_spans_nothing_is_learnt_and_no_loss_bridges_the_gap():
    """K = 4: spans of six positions out of ten each complete three losses, those of every loss in one span."""
    gamma = np.random.default_rng(9).random((20, 3))
    policy = make_policy("normal-hedge:loss=length,span=6", 3)
    policy.begin(Context(draft_length=K))
    assert policy.evaluation_span == 6
    for begin in (0, 10):
        for emitted in (5, 5):
            last = gamma[begin + 4 : begin + 10] if policy.unseen_chunks else None
            policy.update(Feedback(0, K, emitted - 1, emitted, K, gamma=None if last is None else by_depth(last)))
    losses = [1 - expected_accept_lengths(by_depth(gamma[b + 4 : b + 10]), K) / (K + 1) for b in (0, 10)]
    assert policy.probabilities() == pytest.approx(normal_hedge(np.concatenate(losses))[-1].tolist(), abs=1e-9)
    assert make_policy("normal-hedge:span=2", 3).evaluation_span == 8  # K by default
    assert make_policy("normal-hedge:span=0", 3).evaluation_span is None
    assert make_policy("normal-hedge:game=chunk", 3).evaluation_span is None
    with pytest.raises(PolicyError, match="a chunk is judged whole"):
        make_policy("normal-hedge:game=chunk,span=8", 3)


def test_nothing_is_evaluated_before_a_length_loss_can_be_complete():
    """K = 4: after rounds of 1 and 2 tokens there is nothing to learn; 3 more complete three positions' losses."""
    policy, wanted = make_policy("normal-hedge:loss=length", 2), []
    policy.begin(Context(draft_length=K))
    unseen = 0
    for emitted in (1, 2, 3, 1, 2):
        wanted.append(policy.wants_evaluation(emitted))
        unseen += emitted
        gamma = np.full((unseen, K, 2), 0.5) if wanted[-1] else None
        unseen = 0 if wanted[-1] else unseen
        policy.update(Feedback(0, K, emitted - 1, emitted, K, gamma=gamma))
    assert wanted == [False, False, True, True, True]  # thereafter K - 1 positions wait, and each token completes one
    assert len(policy.queue) == K - 1


def test_a_guess_counts_as_one_loss_for_each_token_of_a_draft_and_spares_the_warm_up():
    policy = make_policy("normal-hedge:loss=acceptance,start=previous", 3)
    policy.begin(Context(draft_length=K, previous=[0.5, 0.9, 0.8]))
    expected = normal_hedge(np.tile([0.5, 0.1, 0.2], (K, 1)))[-1]
    assert policy.probabilities() == pytest.approx(expected.tolist(), abs=1e-9)
    rounds = []
    for number in range(1, 26):
        rounds += [number] if policy.wants_evaluation(1) else []
        policy.update(seen(None))
    assert rounds == [12, 24]


def test_soft_acceptance_is_asked_for_by_its_setting():
    policies = [make_policy(f"normal-hedge{setting}", 2) for setting in ("", ":gamma=soft")]
    assert [(policy.uses_gamma, policy.uses_soft_gamma) for policy in policies] == [(True, False), (True, True)]


def test_reward_of_the_record_is_block_efficiency():
    policy = make_policy("normal-hedge", 2)
    policy.update(seen(None, accepted=3))
    assert policy.last_reward == 0.75
    policy.update(Feedback(0, drafted=0, accepted=0, emitted=1, draft_length=K))
    assert policy.last_reward == 0.0


def test_probabilities_sum_to_one_and_are_those_of_select():
    policy = make_policy("normal-hedge:loss=acceptance", 4, seed=3)
    p = feed(policy, [[0.5, 0.4, 0.2, 0.45], [0.3, 0.5, 0.2, 0.45]])
    assert sum(p) == pytest.approx(1, abs=1e-12)
    assert sorted(p)[1] > 0.05  # several arms in play
    counts = Counter(policy.select() for _ in range(6000))
    assert [counts[arm] / 6000 for arm in range(4)] == pytest.approx(p, abs=0.025)


def play(policy, shares, rounds, seed=0):
    """Arms played where drafter ``i`` is accepted at a position with a probability about ``shares[i]``."""
    rng = np.random.default_rng(seed)
    arms, pending = [], []
    for _ in range(rounds):
        arms.append(policy.select())
        accepted = min(int(rng.geometric(1 - shares[arms[-1]])) - 1, K)
        pending.extend(np.clip(shares + rng.normal(0, 0.2, (accepted + 1, len(shares))), 0, 1))
        gamma = by_depth(pending) if policy.wants_evaluation(1) else None
        if gamma is not None:
            pending = []
        policy.update(Feedback(arms[-1], K, accepted, accepted + 1, K, gamma=gamma))
    return arms


@pytest.mark.parametrize("loss", ["length", "acceptance", "hybrid"])
def test_the_best_arm_is_found_soon(loss):
    arms = play(make_policy(f"normal-hedge:loss={loss}", 5, seed=1), np.array([0.3, 0.4, 0.75, 0.5, 0.2]), 80)
    assert arms[-50:].count(2) > 45


def test_a_change_of_the_best_arm_is_noticed():
    policy = make_policy("normal-hedge:loss=acceptance,every=1", 2)
    assert feed(policy, [[0.9, 0.3]] * 30)[0] > 0.99
    assert feed(policy, [[0.3, 0.9]] * 60)[1] > 0.99


def test_seed_decides_and_reset_forgets():
    shares = np.array([0.5, 0.55, 0.45])
    policy = make_policy("normal-hedge:loss=length", 3, seed=4)
    first = play(policy, shares, 60)
    assert first == play(make_policy("normal-hedge:loss=length", 3, seed=4), shares, 60)
    assert first != play(make_policy("normal-hedge:loss=length", 3, seed=5), shares, 60)
    policy.begin(Context("another query"))
    assert policy.probabilities() == [1 / 3] * 3
    assert len(policy.queue) == 0
    assert play(policy, shares, 60) == first


def test_hedge_against_the_formula():
    rng = np.random.default_rng(2)
    policy = make_policy("hedge:loss=acceptance", 3)
    losses = []
    for t in range(1, 80):
        losses.append(rng.uniform(size=3))
        p = feed(policy, [1 - losses[-1]])
        horizon = 16 if t < 16 else 32 if t < 32 else 64 if t < 64 else 128  # of position t + 1
        weights = np.exp(-math.sqrt(8 * math.log(3) / horizon) * np.sum(losses, axis=0))
        assert p == pytest.approx((weights / weights.sum()).tolist())


@pytest.mark.parametrize("name", ["hedge", "normal-hedge", "ada-normal-hedge"])
@pytest.mark.parametrize("loss", ["length", "acceptance"])
def test_the_chunk_game_judges_each_round_once(name, loss, monkeypatch):
    """Rounds of 3, 1 and 2 tokens evaluated together: three losses, each over its own chunk's length."""
    policy = make_policy(f"{name}:game=chunk,loss={loss},warmup=0,every=3", 2)
    learnt = []
    monkeypatch.setattr(policy, "learn", learnt.append)
    gamma = np.random.default_rng(0).uniform(size=(6, 2))
    for accepted in (2, 0):
        policy.update(seen(None, accepted=accepted))
    policy.update(seen(gamma, accepted=1))
    for row, chunk in zip(learnt, (gamma[:3], gamma[3:4], gamma[4:]), strict=True):
        if loss == "acceptance":
            assert row == pytest.approx((1 - chunk.mean(axis=0)).tolist())
        else:
            lengths = 1 + np.cumprod(chunk, axis=0).sum(axis=0)
            assert row == pytest.approx((1 - lengths / (len(chunk) + 1)).tolist())
