"""``rate-hedge``: expected tokens per second, by hand, in simulation and live."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from drafters.costs import CostMeter, Costs
from drafters.sampling import SamplingParams
from drafters.traffic import Traffic
from multidraft.bench.simulate import draw_table, simulate
from multidraft.engine.decoding import generate
from multidraft.policies import NO_DRAFTER, Context, Feedback, make_policy, rate_hedge
from multidraft.replay.walk import best_fixed_rate, replay
from tests import tiny

K = 4


@pytest.fixture(autouse=True)
def no_luck(monkeypatch):
    """Of drafters that seem alike the first is played."""
    monkeypatch.setattr(rate_hedge, "LUCK", 0.0)


def policy_with(costs, arms=2, spec="rate-hedge", route=None):
    policy = make_policy(spec, arms)
    policy.begin(Context("prompt", K, costs, route))
    return policy


def tell(policy, gamma):
    """An evaluation of all drafters, the round itself apart."""
    policy._evaluated(np.repeat(np.asarray(gamma, dtype=float)[:, None], K, axis=1))
    policy.tokens = policy.belief @ policy.levels.yields


def levels_of(policy):
    return policy.levels.accepted[1]


def beliefs(policy, arm, accepted, refused):
    """By hand: the start's Beta guess of 4 tokens, 0.6 of them accepted, and what was seen."""
    weights = levels_of(policy) ** (4 * 0.6 + accepted) * (1 - levels_of(policy)) ** (4 * 0.4 + refused)
    return weights / weights.sum()


def test_levels_are_evenly_spaced_in_their_log_odds():
    levels = levels_of(policy_with(None))
    assert len(levels) == 13 and np.diff(np.log(levels / (1 - levels))) == pytest.approx([2 / 3] * 12)
    assert levels[[0, 6, 12]] == pytest.approx([0.018, 0.5, 0.982], abs=1e-3)


def test_beliefs_and_expected_tokens_by_hand():
    policy = policy_with(Costs.uniform(2, K, step=0.1, verify=1.0), spec="rate-hedge:memory=1")
    for accepted in (4, 1):  # the second was refused at its second token
        policy.update(Feedback(0, K, accepted, accepted + 1, K))
    assert policy.belief[0] == pytest.approx(beliefs(policy, 0, 5, 1))
    assert policy.belief[1] == pytest.approx(beliefs(policy, 1, 0, 0))
    tokens = [sum(levels_of(policy) ** depth for depth in range(k + 1)) for k in range(1, K + 1)]
    assert policy.tokens[0] == pytest.approx([policy.belief[0] @ values for values in tokens])
    assert policy.tokens[1, 0] == pytest.approx(1.6, abs=0.01) and policy.tokens[0, 0] > 1.7


def test_a_draft_that_ends_early_is_as_good_as_refused_there():
    policy = policy_with(Costs.uniform(2, K, step=0.1, verify=1.0), spec="rate-hedge:memory=1")
    for drafted, accepted in ((2, 2), (1, 0)):
        policy.update(Feedback(0, drafted, accepted, accepted + 1, K))
    assert policy.belief[0] == pytest.approx(beliefs(policy, 0, 2, 2))
    assert policy.drafting[1] == pytest.approx([1.1, 1.2, 1.3, 1.4])


def test_who_stops_when_it_is_wrong_costs_less_the_less_it_is_believed():
    """So it is tried where one that drafts on would be too dear, and costs as much where all is accepted."""
    costs = replace(Costs.uniform(2, K, step=0.1, verify=1.0), overrun=np.array([1.0, 0.0]))
    policy = policy_with(costs)
    assert (policy.drafting[1] < policy.drafting[0])[1:].all()
    assert policy.pairs.known[1, :, -1] == pytest.approx(policy.pairs.known[1, :, -1].clip(1.1)), (
        "one is drafted in any case"
    )
    assert (np.diff(policy.pairs.known[1, :, -1]) >= 0.0).all() and policy.pairs.known[1, -1] == pytest.approx(
        policy.pairs.known[0, -1], rel=0.02
    )


def test_an_evaluation_counts_what_each_drafter_s_own_rounds_would_have_shown():
    """γ by depth: drafter 0 is accepted twice at any depth, then never; drafter 1 at the first token of a draft."""
    policy = policy_with(Costs.uniform(2, K, step=0.1, verify=1.0), spec="rate-hedge:memory=1")
    gamma = np.zeros((4, K, 2))
    gamma[:2, :, 0] = 1.0
    gamma[:, 0, 1] = 1.0
    policy._evaluated(gamma)
    assert policy.belief[0] == pytest.approx(beliefs(policy, 0, 2, 2))
    assert policy.belief[1] == pytest.approx(beliefs(policy, 1, 2, 2)), "every other position is its second token"


def test_a_draft_accepted_whole_is_followed_by_another():
    policy = policy_with(Costs.uniform(1, K, step=0.1, verify=1.0), arms=1, spec="rate-hedge:memory=1")
    gamma = np.ones((6, K, 1))
    gamma[4, 1:], gamma[5, 1] = 0.0, 0.0  # the fifth position is the first of the second draft
    policy._evaluated(gamma)
    assert policy.belief[0] == pytest.approx(beliefs(policy, 0, 5, 1))


def test_probabilities_count_as_shares_and_the_newest_most():
    policy = policy_with(Costs.uniform(1, K, step=0.1, verify=1.0), arms=1, spec="rate-hedge:memory=0.9")
    tell(policy, [[0.5], [0.4]])
    assert policy.belief[0] == pytest.approx(beliefs(policy, 0, 0.9 * 0.5 + 0.4, 0.9 * 0.5 + 0.6))


def test_what_is_believed_returns_to_what_has_been_typical_of_the_text():
    """At first to the start's guess; that counts as four tokens, and what was believed at each token since as one."""
    policy = policy_with(Costs.uniform(2, K, step=0.1, verify=1.0), spec="rate-hedge:memory=0.9")
    start = policy.belief[1].copy()
    policy.belief[1] = 0.0
    policy.belief[1, -1] = 1.0
    policy.update(Feedback(0, K, 2, 3, K))
    believed = 0.9**3 * np.eye(13)[-1] + (1 - 0.9**3) * start
    assert policy.belief[1] == pytest.approx(believed) and policy.belief.sum(axis=1) == pytest.approx([1.0, 1.0])
    assert policy.typical[1] == pytest.approx((4 * start + 3 * believed) / 7)
    policy.update(Feedback(0, K, 2, 3, K))
    assert policy.belief[1] == pytest.approx(0.9**3 * believed + (1 - 0.9**3) * (4 * start + 3 * believed) / 7)


def test_dear_drafting_makes_short_drafts_and_none_at_all():
    lengths = []
    for step in (0.01, 0.3, 2.0):
        policy = policy_with(Costs.uniform(2, K, step=step, verify=1.0))
        tell(policy, [[0.8, 0.2]] * 30)
        policy.retry_after = 1  # not in the round of a try
        lengths.append((policy.select(), policy.draft_length(K)))
    assert lengths[0] == (0, K) and lengths[1][0] == 0 and 0 < lengths[1][1] < K and lengths[2][0] == NO_DRAFTER


def test_drafts_that_do_not_pay_are_tried_less_and_less_often():
    policy = policy_with(Costs.uniform(2, K, step=2.0, verify=1.0, evaluate=1e9))
    tries = [t for t, arm in enumerate(play_rounds(policy, [()] * 200)) if arm != NO_DRAFTER]
    assert tries == [0, 8, 40, 160]


def test_costs_of_a_bad_time_do_not_end_drafting_for_good():
    meter = CostMeter(2)
    for _ in range(50):
        meter.played(None, 0, 0, 0.0, 1.0, 1)
        meter.played(0, K, K, K * 2.0, 9.0, 1)
    policy = policy_with(meter)
    arms = []
    for _ in range(12):
        arm = policy.select()
        length = policy.draft_length(K) if arm != NO_DRAFTER else 0
        meter.played(None if arm == NO_DRAFTER else arm, length, length, 0.1 * length, 1.0, length + 1)
        policy.update(Feedback(arm, length, length, length + 1, length))
        arms.append(arm)
    assert NO_DRAFTER not in arms[2:]


def test_drafts_accepted_whole_are_followed_by_a_longest_one_less_and_less_often():
    """Long verifications seem dear, so drafts are short; only a long one can tell that they are not."""
    costs = Costs(np.array([0.1]), np.zeros(1), np.array([1.0, 1.1, 2.6, 4.1, 5.6]))
    policy, lengths = policy_with(costs, arms=1, spec="rate-hedge:memory=1"), []
    for _ in range(12):
        policy.select()
        length = policy.draft_length(K)
        lengths.append(length)
        policy.update(Feedback(0, length, length, length + 1, length))
    assert lengths == [1, 1, K, *[1] * 8, K]
    policy.update(Feedback(0, 1, 0, 1, 1))
    assert policy.whole == 0, "a refusal starts the count anew"


def test_a_good_drafter_that_is_slow_loses_to_a_fair_one_that_is_fast():
    costs = Costs(np.array([0.5, 0.02]), np.zeros(2), np.ones(K + 1))
    policy = policy_with(costs)
    tell(policy, [[0.8, 0.6]] * 50)
    assert policy.select() == 1


def test_catching_up_is_charged():
    costs = Costs(np.array([0.1, 0.1]), np.array([0.0, 0.05]), np.ones(K + 1))
    policy = policy_with(costs)
    tell(policy, [[0.7, 0.72]] * 50)
    assert policy.select() == 1
    policy.unread[:] = 10.0
    assert policy.select() == 0


def test_the_router_is_believed_first_and_evidence_later():
    policy = policy_with(Costs.uniform(3, K, step=0.1, verify=1.0), arms=3, route=lambda prompt: [0.0, 1.0, 0.0])
    assert policy.select() == 1
    tell(policy, [[0.0, 0.0, 1.0]] * 12)
    assert policy.select() == 2


def play_rounds(policy, accepted):
    """Rounds in which each drafter's whole draft is accepted or refused at once; the arms that were played."""
    arms = []
    for good in accepted:
        arm = policy.select()
        length = policy.draft_length(K) if arm != NO_DRAFTER else 0
        taken = length if arm in good else 0
        assert not policy.wants_evaluation(taken + 1)
        policy.update(Feedback(arm, length, taken, taken + 1, length))
        arms.append(arm)
    return arms


def test_the_second_of_two_trusted_drafters_is_played_when_the_first_fails():
    costs = Costs.uniform(3, K, step=0.1, verify=1.0, evaluate=1e9)  # no evaluation will ever pay
    policy = policy_with(costs, arms=3, route=lambda prompt: [1.0, 0.0, 1.0])
    arms = play_rounds(policy, [{0}] * 8 + [{2}] * 8)
    assert arms[:8] == [0] * 8
    switched = arms.index(2)
    assert switched <= 13 and arms[switched:] == [2] * (16 - switched)


def test_a_disappointing_drafter_calls_for_an_evaluation():
    costs = Costs(np.full(2, 0.1), np.zeros(2), np.ones(K + 1), evaluate=2.0)
    policy = policy_with(costs)
    tell(policy, [[0.95, 0.3]] * 40)
    policy.elapsed = 1e9
    calls = []
    while policy.select() == 0:
        accepted = 4 if len(calls) < 3 else 0
        calls.append(policy.wants_evaluation(accepted + 1))
        policy.update(Feedback(0, K, accepted, accepted + 1, K, seconds=1.0))
    assert calls[:3] == [False] * 3 and calls[-1] and 5 <= len(calls) <= 12


def test_evaluations_keep_within_their_budget():
    """However much the text surprises."""
    costs = Costs(np.full(3, 0.1), np.zeros(3), np.ones(9), evaluate=2.0)
    rng = np.random.default_rng(0)
    table = draw_table(rng.choice([0.05, 0.95], size=(3, 400)), 8, rng)
    for budget in (0.0, 0.02, 0.1):
        policy = make_policy(f"rate-hedge:budget={budget}", 3)
        replay(table, policy, draft_length=8, costs=costs)
        assert policy.evaluating <= budget * policy.elapsed + 2.0


def test_in_a_batch_no_drafter_reads_the_prompt_even_where_nothing_is_measured_yet():
    costs = CostMeter(3)
    assert len(policy_with(costs, arms=3).candidates()) == 3
    costs.crowd.texts = 2
    assert not policy_with(costs, arms=3).candidates()


def test_little_is_lost_where_no_drafter_helps():
    costs = Costs(np.full(8, 0.05), np.zeros(8), 1.0 + 0.02 * np.arange(9), evaluate=0.4)
    played = replay(np.zeros((8, 200), dtype=int), "rate-hedge", draft_length=8, costs=costs)
    assert played.seconds < 1.08 * 200  # evaluations take 3 %; a change may bring each of eight drafters into play


def test_it_is_faster_than_hedge_on_the_published_table_and_far_faster_where_the_task_changes():
    """Seven specialists of HedgeSpec's table, its costs; the same responses for all."""
    values = np.full((7, 7), 3.5) + 4.0 * np.eye(7)
    table = pd.DataFrame(values, [f"d{i}" for i in range(7)], [f"t{i}" for i in range(7)])
    costs = Costs.uniform(7, 8, step=0.0025, verify=0.0757, evaluate=0.0029)
    specs = ["rate-hedge", "normal-hedge", "ucbspec"]
    rates = []
    for mixed in (False, True):
        found = simulate(table, specs, tokens=(200, 300), seeds=40 if mixed else 8, costs=costs, mixed=mixed)
        rates.append([found["policies"][spec]["tokens_per_second"] for spec in specs])
    assert rates[0][0] > rates[0][1] > rates[0][2]
    assert rates[1][0] > 1.1 * max(rates[1][1:])


def test_it_comes_close_to_the_best_pair_in_hindsight():
    rng = np.random.default_rng(3)
    costs = Costs.uniform(4, 8, step=0.1, verify=1.0, evaluate=0.2)
    ratios = []
    for _ in range(10):
        gamma = rng.permutation([0.85, 0.5, 0.4, 0.3])
        table = draw_table(np.repeat(gamma[:, None], 250, axis=1), 8, rng)
        best, *_ = best_fixed_rate(table, costs, range(9))
        ratios.append(replay(table, "rate-hedge", draft_length=8, costs=costs).tokens_per_second / best)
    assert np.mean(ratios) > 0.9


@pytest.mark.parametrize("lessons", [0, 6])
def test_live_rounds_are_those_replayed_without_a_clock(pool, monkeypatch, lessons):
    """With costs that stay the same a greedy run and its replay agree round by round.

    Two are too dear to be played: drafts of lookup and of a short window may be shorter than asked for, which the table
    does not tell.
    """
    from multidraft.replay.regret import acceptance_table

    costs = Costs(np.array([0.1, 9.0, 0.12, 9.0]), np.full(4, 0.01), 1.0 + 0.05 * np.arange(5), 0.0, 0.0)
    monkeypatch.setattr(pool.costs, "costs", lambda length: costs)
    traffic, told, prompts = Traffic(4, 4), np.random.default_rng(0).random((lessons, 3, 4)), tiny.texts(3, 8, 3)
    traffic.learn((f"{prompts[n % 3]} {n}", stretches) for n, stretches in enumerate(told))
    monkeypatch.setattr(pool, "traffic", traffic)
    for prompt in prompts:
        live = generate(pool, prompt, "rate-hedge:budget=0", SamplingParams(40, draft_length=4))
        assert bool(live.prior and live.prior.texts) == bool(lessons)
        table = acceptance_table(pool, pool.encode(prompt), live.token_ids, 4)
        played = replay(table, "rate-hedge:budget=0", draft_length=4, costs=costs, prior=live.prior)
        assert played.lengths == [r.draft_length for r in live.rounds]
        assert played.emitted == [r.emitted for r in live.rounds]
