"""``rate-hedge``: what it reads off the costs, what it takes for a change, when it asks all drafters or a rival.

Four tokens a draft. Where nothing else is said a target step takes 1, a drafted token 0.1, and every drafter is
expected to be accepted with 0.6: three tokens are best then, 1 + 0.6 + 0.36 + 0.216 = 2.176 tokens in 1.3.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from drafters.costs import Costs
from multidraft.policies import NO_DRAFTER, Context, Feedback, make_policy
from tests.multidraft.policies.test_rate_hedge import K, policy_with, tell

STEADY = Costs(np.full(3, 0.1), np.zeros(3), np.ones(K + 1), evaluate=0.7, evaluate_token=0.01)
RATE, BEST = 2.176 / 1.3, (1 + 0.9 + 0.81 + 0.729 + 0.6561) / 1.4


def made(routed=None, spec="rate-hedge:memory=1", costs=STEADY):
    return policy_with(costs, 3, spec, (lambda prompt: routed) if routed else None)


def played(policy, arm=0, accepted=1, drafted=K, gamma=None):
    policy.update(Feedback(arm, drafted, accepted, accepted + 1, K if arm != NO_DRAFTER else 0, gamma=gamma))


def test_costs_of_a_pair_by_hand():
    """Each drafted token costs its step and, with its width, a share of the verification, which starts at 1.3 - 0.1."""
    costs = Costs(
        np.array([0.1, 0.2]), np.array([0.01, 0.02]), np.array([1.0, 1.3, 1.4, 1.5, 1.6]), 0.7, 0.01,
        persistence=np.array([1.0, 0.5]), width=np.array([1.0, 3.0]), draft_start=np.array([0.05, 0.0]),
    )  # fmt: skip
    policy = policy_with(costs)
    assert policy.drafting[0] == pytest.approx([1.25 + 0.2 * drafted for drafted in (1, 2, 3, 4)])
    assert policy.drafting[1] == pytest.approx([1.2 + 0.5 * drafted for drafted in (1, 1.5, 1.75, 1.875)])
    assert (policy.plain, policy.evaluation) == (1.0, (0.7, 0.01))
    assert policy.catch_up.tolist() == [0.01, 0.02]
    # What may be discovered has the median costs of the drafters: 1.225 and 0.35 a token.
    assert policy.best_rate == pytest.approx((1 + 0.9 + 0.81 + 0.729 + 0.6561) / (1.225 + 4 * 0.35))


@pytest.mark.parametrize("costs", [None, Costs(np.zeros(2), np.zeros(2), np.zeros(K + 1))])
def test_while_nothing_is_measured_a_drafted_token_costs_a_tenth_of_a_step(costs):
    policy = policy_with(costs)
    assert policy.drafting == pytest.approx(np.tile([1.1, 1.2, 1.3, 1.4], (2, 1)))
    assert policy.plain == 1.0 and policy.evaluation == (0.0, 0.0)


@pytest.mark.parametrize(
    ("verify", "drafting"),
    [
        ([1.0, 1.3], [1.4]),  # drafts of one token tell no slope
        ([1.0, 1.3, 1.5], [1.4, 1.7]),
        ([0.006, 0.008, 0.009, 0.01, 0.011], [0.108, 0.209, 0.31, 0.411]),
    ],
)
def test_costs_of_chains_of_any_length_in_any_unit(verify, drafting):
    policy = make_policy("rate-hedge", 1)
    policy.begin(Context(draft_length=len(drafting), costs=Costs(np.array([0.1]), np.zeros(1), np.array(verify))))
    assert policy.drafting[0].tolist() == pytest.approx(drafting) and policy.plain == verify[0]


def test_the_best_pair_is_remembered_with_its_rate_and_time():
    policy = made()
    assert policy.select() == 0
    assert (policy.length, policy.rate, policy.seconds) == (3, pytest.approx(RATE), pytest.approx(1.3))
    assert policy.best_rate == pytest.approx(BEST)
    played(policy)
    assert policy.elapsed == pytest.approx(1.3) and policy.draft_length(2) == policy.length == 2
    assert policy.uses_costs and policy.uses_gamma


def test_a_round_without_a_draft_has_the_target_s_rate():
    policy = made(costs=Costs(np.full(3, 9.0), np.zeros(3), np.full(K + 1, 2.0)))
    assert policy.select() == 0 and policy.probing  # the first round tries all the same
    played(policy, accepted=0)
    assert policy.select() == NO_DRAFTER and not policy.probing
    assert (policy.rate, policy.seconds, policy.length) == (0.5, 2.0, 0)


def test_in_a_batch_the_first_round_is_no_try_and_no_prompt_is_read_before_it_is_needed():
    """Alone a drafter that does not pay is tried once all the same; in a batch other texts tell what it costs."""
    slow = replace(STEADY, draft_step=np.full(3, 9.0))
    assert list(made(costs=slow).candidates()) == [0, 1, 2] and made(costs=slow).select() == 0
    policy = made(costs=replace(slow, texts=2))
    assert list(policy.candidates()) == [] and policy.select() == NO_DRAFTER
    assert list(made(costs=replace(STEADY, texts=2)).candidates()) == []


def test_it_rests_where_its_batch_does_not_draft_and_goes_on_where_it_was():
    policy = made(costs=replace(STEADY, texts=2))
    assert policy.select() != NO_DRAFTER and not policy.resting
    policy.context = replace(policy.context, costs=replace(STEADY, texts=2, drafts=False))
    for _ in range(20):
        assert policy.select() == NO_DRAFTER and policy.resting and not policy.wants_evaluation(1)
        played(policy, NO_DRAFTER, 0, 0)
    assert policy.undrafted == 0, "that was not its choice"
    policy.context = replace(policy.context, costs=replace(STEADY, texts=2))
    assert policy.select() != NO_DRAFTER and not policy.resting


def test_in_a_batch_it_looks_less_and_less_often_whether_drafts_pay():
    policy, looked = made(costs=replace(STEADY, draft_step=np.full(3, 9.0), texts=2)), []
    for t in range(100):
        looked += [] if policy.resting else [t]
        assert policy.select() == NO_DRAFTER
        played(policy, NO_DRAFTER, 0, 0)
    assert looked == [0, 8, 18, 38, 78]


def test_only_drafters_that_the_start_trusts_read_the_prompt_at_once():
    policy = policy_with(STEADY, 3, "rate-hedge", lambda prompt: [0.1, 1.0, 0.2])
    assert list(policy.candidates()) == [1]
    policy.begin(replace(policy.context, prompt_tokens=50))
    assert policy.unread.tolist() == [50, 0, 50]


def test_what_a_drafter_has_to_read_is_spread_over_as_many_rounds_as_there_were():
    policy = made(costs=replace(STEADY, catch_up=np.ones(3)))
    policy.guess[1] = 0.9
    policy._estimate([1])
    policy.unread[:] = 0.0, 10.0, 0.0
    assert policy.select() == 0
    policy.t = 200
    assert policy.select() == 1


def test_where_drafts_do_not_pay_it_looks_no_more_often_than_it_estimates():
    """What was emitted meanwhile counts then."""
    policy = made(spec="rate-hedge:memory=0.9", costs=replace(STEADY, draft_step=np.full(3, 9.0), texts=2))
    policy.counts[:] = 1.0
    for t in range(1, 8):
        assert policy.select() == NO_DRAFTER
        played(policy, NO_DRAFTER, 0, 0)
        assert policy.resting and policy.undrafted == t and policy.counts.min() == 0.9 and policy.unread.max() == 1
    played(policy, NO_DRAFTER, 0, 0)
    assert not policy.resting and policy.counts == pytest.approx(0.9**8) and policy.unread.tolist() == [8] * 3


def test_evidence_fades_by_the_token_and_the_others_fall_behind():
    policy = made(spec="rate-hedge:memory=0.9")
    policy.counts[:] = 1.0
    played(policy, arm=1, accepted=2)
    assert policy.counts[0, 0] == pytest.approx([0.9**3] * (K + 1))
    assert policy.counts[0, 1] == pytest.approx([0.9**3 + new for new in (1, 1, 1, 0, 3)])
    assert policy.unread.tolist() == [3, 1, 3]
    played(policy, NO_DRAFTER, 0, 0)
    assert policy.unread.tolist() == [4, 2, 4]


@pytest.mark.parametrize(
    ("guess", "believed", "routed", "chance"),
    [
        ([0.0, 1.0, 0.4], [0.05, 0.95, 0.4], [0.3, 0.95, 0.4], 0.2),
        ([0.6, 0.1, 0.2], [0.6, 0.1, 0.2], [0.6, 0.3, 0.3], 0.2),
        ([0.5, 0.1, 0.2], [0.5, 0.1, 0.2], [0.5, 0.3, 0.3], 0.5),
    ],
)
def test_a_warm_start_is_believed_within_limits_and_trusted_from_0_6_on(guess, believed, routed, chance):
    policy = make_policy("rate-hedge:start=previous", 3)
    policy.begin(Context(draft_length=K, previous=guess))
    assert policy.guess.tolist() == believed and policy.routed.tolist() == routed
    assert (policy.discovery_chance, policy.trusting) == (chance, chance == 0.2)
    assert policy.tokens[:, 0].tolist() == pytest.approx([1 + value for value in believed])


def test_a_single_drafter_leaves_nothing_to_discover():
    assert (policy_with(STEADY, 1).discovery_chance, made().discovery_chance) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("accepted", "length", "ratio"),
    [
        (4, 4, 4 * math.log(0.5)),
        (1, 4, math.log(0.5) + math.log((1 - 0.3) / (1 - 0.6))),
        (0, 2, math.log((1 - 0.4) / (1 - 0.8))),
        (2, 2, 2 * math.log(0.5)),
        (2, 4, 2 * math.log(0.5) + math.log((1 - 0.49) / (1 - 0.98))),
    ],
)
def test_the_evidence_of_a_change_is_the_likelihood_ratio_of_half_the_acceptance(accepted, length, ratio):
    policy = made()
    policy.hazards[1] = [0.8, 0.6, 0.999, 0.5]  # nothing counts as more certain than 0.98
    assert policy._evidence_of_change(1, accepted, length) == pytest.approx(ratio)


def test_the_evidence_is_summed_from_where_it_was_last_none():
    policy = made()
    policy.arm, policy.length, policy.hazards[0] = 0, 4, [0.8] * 4
    sums, refused = [], math.log(0.6 / 0.2)
    for emitted in (1, 1, 2, 5, 1):
        policy.wants_evaluation(emitted)
        sums.append((policy.change, policy.changed))
    expected = [(refused, 1), (2 * refused, 2), (3 * refused + math.log(0.5), 4), (0.0, 0), (refused, 1)]
    assert sums == [(pytest.approx(change), since) for change, since in expected]
    policy.length = 0  # a round without a draft says nothing, nor does that of a rival
    policy.wants_evaluation(1)
    policy.length, policy.trial = 4, 2
    policy.wants_evaluation(1)
    assert (policy.change, policy.changed) == (pytest.approx(refused), 3)


@pytest.mark.parametrize(("change", "changed", "span"), [(5.0, 40, 32), (5.1, 4, 10), (5.1, 14, 14)])
def test_an_evaluation_looks_back_to_the_change(change, changed, span):
    policy = made()
    policy.change, policy.changed = change, changed
    assert policy.evaluation_span == span


WORTH = 0.5 * (1 - RATE / BEST)  # of each second so far, where there is an even chance of a better drafter


@pytest.mark.parametrize(
    ("state", "least"),
    [
        ({}, 0.73 / WORTH),
        ({"emitted": 4}, 0.77 / WORTH),  # in rounds at which it looked at nothing
        ({"discovery_chance": 0.25}, 2 * 0.73 / WORTH),
        ({"evaluating": 1.0}, 1.73 / 0.03),  # all but the first keep within the budget
        ({"evaluating": 1.0, "change": 20.0, "discovery_chance": 0.0}, 1.73 / 0.15),  # five times as much when alarmed
        ({"change": 20.0, "discovery_chance": 0.0}, 0.0),
        ({"rate": BEST + 1.0}, math.inf),
        ({"change": 20.0, "discovery_chance": 0.0, "routed": np.array([0.3, 0.9, 0.3])}, math.inf),  # ask the rival
    ],
)
def test_an_evaluation_has_to_be_worth_its_time(state, least):
    """It costs 0.7 and 0.01 for each of three tokens."""
    for elapsed in (0.99 * least, 1.01 * least) if 0 < least < math.inf else (1e6,):
        policy = made()
        policy.select()
        vars(policy).update(state, elapsed=elapsed)
        assert policy.wants_evaluation(3) == (elapsed > least)


def test_after_an_evaluation_all_are_judged_and_a_discovery_is_half_as_likely():
    policy = made([1.0, 0.0, 0.0])
    policy.change, policy.changed, policy.evaluating = 1.0, 3, 1.0
    policy.unread[:], policy.counts[:] = (3.0, 7.0, 5.0), 4.0
    tell(policy, [[1.0, 0.0, 1.0]])
    assert policy.guess.tolist() == [0.3] * 3 and policy.discovery_chance == 0.1
    assert policy.evaluating == pytest.approx(1.75)
    assert (policy.change, policy.changed) == (0.0, 0)
    assert policy.unread.tolist() == [0.0] * 3
    assert policy.counts[0, :, 0].tolist() == [4.5] * 3 and policy.counts[1, :, 0].tolist() == [4.5, 4.0, 4.5]
    assert policy.tokens[0, 0] == pytest.approx(1 + (4.5 + 2.5 * 0.3) / (4.5 + 2.5))


@pytest.mark.parametrize(("trial", "judged"), [(NO_DRAFTER, 0), (0, 1)])
def test_an_evaluation_after_a_change_forgets_and_believes_the_start_anew(trial, judged):
    """But for the drafter that was in charge, also where a rival has just played."""
    policy = made([1.0, 1.0, 0.0])
    policy.change, policy.trial, policy.doubted, policy.discovery_chance = 5.1, trial, 1, 0.01
    policy.counts[:] = 4.0
    tell(policy, [[0.0, 0.0, 0.0]])
    expected = [0.8, 0.8, 0.35]
    expected[judged] = 0.3
    assert policy.guess.tolist() == pytest.approx(expected)
    assert policy.counts[:, 2, 0].tolist() == [1.5, 1.0] and policy.discovery_chance == 0.25
    assert policy.trial == NO_DRAFTER


@pytest.mark.parametrize(("change", "trial"), [(2.5, NO_DRAFTER), (2.6, 1)])
def test_a_doubt_gives_the_first_trusted_rival_a_round_as_on_the_first_day(change, trial):
    policy = made([1.0, 1.0, 1.0])
    policy.change, policy.counts[:] = change, 4.0
    policy.guess[:] = 0.1
    played(policy)
    assert policy.trial == trial
    if trial == 1:
        assert policy.doubted == 0 and policy.tried == {0, 1} and policy._rivals() == [2]
        assert not policy.counts[:, 1].any() and policy.guess[1] == 0.8 and policy.select() == 1
        assert policy.length == K  # 1 + 0.8 + 0.64 + 0.512 + 0.4096 in 1.4
        assert policy.tokens[1, 0] == pytest.approx(1.8)


@pytest.mark.parametrize(
    ("drafted", "accepted", "better"), [(4, 2, True), (4, 1, False), (1, 1, True), (0, 0, False), (1, 0, False)]
)
def test_a_rival_that_has_two_tokens_or_all_of_its_draft_accepted_does_better(drafted, accepted, better):
    policy = made([1.0, 1.0, 0.0])
    policy.change, policy.changed, policy.trial, policy.doubted = 3.0, 9, 1, 0
    policy.counts[:] = 4.0
    before = policy.tokens[0].copy()
    played(policy, 1, accepted, drafted)
    assert policy.trial == NO_DRAFTER
    assert policy.counts[0, 0, 0] == (1.0 if better else 4.0)
    assert (policy.change, policy.changed) == ((0.0, 0) if better else (3.0, 9))
    assert (policy.tokens[0] != before).all() == better


@pytest.mark.parametrize(("change", "left"), [(5.0, 5.0), (5.1, 1.25)])
def test_where_there_is_no_time_to_ask_the_doubt_alone_makes_forget(change, left):
    policy = made()
    policy.change, policy.changed, policy.counts[:] = change, 9, 4.0
    played(policy, accepted=1)
    assert policy.counts[0, 0, 0] == left and policy.counts[0, 1, 0] == 4.0
    assert (policy.change, policy.changed) == ((5.0, 9) if change == 5.0 else (0.0, 0))


class Changing:
    """Costs of which a list is kept of how often they were read."""

    read = 0

    def costs(self, length):
        self.read += 1
        return STEADY


def test_every_8_rounds_costs_are_read_and_estimates_of_the_others_fade():
    costs = Changing()
    policy = made(costs=costs)
    policy.tokens[1], refreshed, read = 0.0, [], []
    for round_ in range(1, 33):
        before = costs.read
        played(policy)
        if policy.tokens[1].any():
            refreshed.append(round_)
        if costs.read > before:
            read.append(round_)
        policy.tokens[1] = 0.0
    assert refreshed == read == [8, 16, 24, 32] and policy.t == 32
    played(policy, gamma=np.zeros((1, K, 3)))
    assert costs.read == 6 and policy.tokens[1].any()  # an evaluation reads and estimates all


def test_what_was_played_is_estimated_at_once():
    policy = made()
    played(policy, 1, 0)
    assert policy.tokens[:, 0] == pytest.approx([1.6, 1 + 1.5 / 3.5, 1.6])


def test_a_round_that_drafted_nothing_tells_of_no_drafter():
    policy = made()
    policy.tokens[:] = 0.0
    played(policy, NO_DRAFTER, 0, 0)
    assert not policy.tokens.any() and not policy.counts.any()
    policy.update(Feedback(0, 0, 0, 1, 0))  # no room for a draft
    assert policy.unread.max() + policy.emitted == 2 and not policy.counts.any()
