"""``rate-hedge``: what it reads off the costs, when it drafts and how far, when it asks all drafters.

Four tokens a draft. Where nothing else is said a target step takes 1, a drafted token 0.1, and every drafter is
expected to be accepted with about 0.6, which may be much more: four tokens are best then.
"""

from dataclasses import replace

import numpy as np
import pytest

from drafters.costs import Costs
from multidraft.policies import NO_DRAFTER, Context, Feedback, make_policy, rate_hedge
from multidraft.policies.pair_costs import Levels
from tests.multidraft.policies.test_rate_hedge import K, no_luck, policy_with, tell  # noqa: F401

STEADY = Costs(np.full(3, 0.1), np.zeros(3), np.ones(K + 1), evaluate=0.7, evaluate_token=0.01)


def made(routed=None, spec="rate-hedge:memory=1", costs=STEADY):
    return policy_with(costs, 3, spec, (lambda prompt: routed) if routed else None)


def played(policy, arm=0, accepted=1, drafted=K, gamma=None):
    policy.update(Feedback(arm, drafted, accepted, accepted + 1, K if arm != NO_DRAFTER else 0, gamma=gamma))


def test_the_best_pair_is_remembered_with_its_rate_and_time():
    policy = made()
    assert policy.select() == 0
    tokens = policy.tokens[0].tolist()
    assert (policy.length, policy.seconds) == (4, pytest.approx(1.4)) and policy.rate == pytest.approx(tokens[3] / 1.4)
    played(policy)
    assert policy.elapsed == pytest.approx(1.4)
    assert policy.draft_length(2) == policy.length == 2 and policy.draft_length(9) == 4, "only that draft is cut"
    assert policy.uses_costs and policy.uses_gamma


def test_a_round_without_a_draft_has_the_target_s_rate():
    policy = made(costs=Costs(np.full(3, 9.0), np.zeros(3), np.full(K + 1, 2.0)))
    assert policy.select() == 0 and policy.probing  # the first round tries all the same
    played(policy, accepted=0)
    assert policy.select() == NO_DRAFTER and not policy.probing
    assert (policy.rate, policy.seconds, policy.length) == (0.5, 2.0, 0)


def test_in_a_batch_no_prompt_is_read_before_it_is_needed():
    slow = replace(STEADY, draft_step=np.full(3, 9.0))
    assert list(made(costs=slow).candidates()) == [0, 1, 2] and made(costs=slow).select() == 0
    assert list(made(costs=replace(STEADY, texts=2)).candidates()) == []


def test_in_a_batch_that_drafts_it_does_too_at_the_best_length():
    """Alone a drafter that does not pay is tried once, with a longest draft, and then less and less often."""
    alone = made(costs=replace(STEADY, draft_step=np.full(3, 9.0)))
    batched = made(costs=replace(STEADY, draft_step=np.full(3, 9.0), texts=2))
    for t in range(8):
        assert (alone.select() == NO_DRAFTER) == (t > 0)
        assert batched.select() != NO_DRAFTER and batched.chosen == 1 and not batched.probing
        for policy in (alone, batched):
            played(policy, policy.arm if policy.length else NO_DRAFTER, 0, policy.length)


def test_in_a_batch_nothing_is_evaluated():
    """Alone it would be: a draft fails at once, and another drafter may be better."""
    for texts in (1, 2):
        policy = made(costs=replace(STEADY, texts=texts))
        policy.select()
        played(policy, accepted=0)
        policy.select()
        assert policy.wants_evaluation(1) == (texts == 1)


def test_cold_those_read_the_prompt_that_cost_least():
    """All are taken to have the same acceptance; what is dear is read when it is first asked."""
    dear = replace(STEADY, draft_step=STEADY.draft_step * np.array([1.0, 1.0, 9.0]))
    assert list(made(costs=dear).candidates()) == [0, 1]
    assert list(made(costs=STEADY).candidates()) == [0, 1, 2]


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


def test_in_a_batch_that_does_not_draft_it_begins_when_that_does():
    asked, silent = [], replace(STEADY, texts=2, drafts=False)
    policy = policy_with(silent, 3, "rate-hedge", lambda prompt: asked.append(prompt) or [0.1, 1.0, 0.2])
    policy.begin(replace(policy.context, prompt_tokens=50))
    for _ in range(3):
        assert policy.select() == NO_DRAFTER and policy.resting and not policy.wants_evaluation(1)
        played(policy, NO_DRAFTER, 0, 0)
    assert not asked and list(policy.candidates()) == []
    policy.context = replace(policy.context, costs=replace(STEADY, texts=1))
    assert policy.select() == 1 and len(asked) == 1
    assert policy.unread.tolist() == [53, 53, 53], "nobody has read anything"


def test_only_drafters_that_the_start_trusts_read_the_prompt_at_once():
    policy = policy_with(STEADY, 3, "rate-hedge", lambda prompt: [0.1, 1.0, 0.2])
    assert list(policy.candidates()) == [1]
    policy.begin(replace(policy.context, prompt_tokens=50))
    assert policy.unread.tolist() == [50, 0, 50]


def test_what_a_drafter_has_to_read_is_spread_over_as_many_rounds_as_there_were():
    policy = made(costs=replace(STEADY, catch_up=np.ones(3)))
    policy.warm_up([0.6, 0.9, 0.6])
    policy.unread[:] = 0.0, 10.0, 0.0
    assert policy.select() == 0
    policy.t = 200
    assert policy.select() == 1


def test_where_drafts_do_not_pay_it_looks_no_more_often_than_it_reads_costs():
    """What was emitted meanwhile counts then."""
    policy = made(spec="rate-hedge:memory=0.9", costs=replace(STEADY, draft_step=np.full(3, 9.0)))
    policy.retry_after = 99
    policy.belief[:] = first = np.eye(13)[[0, 0, 0]]
    policy.pairs.silent[:] = 1.0
    start = policy.typical.copy()
    believed = 0.9 * first + 0.1 * start
    for t in range(1, 8):
        assert policy.select() == NO_DRAFTER
        played(policy, NO_DRAFTER, 0, 0)
        assert policy.resting and policy.undrafted == t and policy.unread.max() == 1
        assert policy.belief == pytest.approx(believed)
    played(policy, NO_DRAFTER, 0, 0)
    assert not policy.resting and policy.pairs.silent == pytest.approx(0.9**8) and policy.unread.tolist() == [8] * 3
    assert policy.belief == pytest.approx(0.9**7 * believed + (1 - 0.9**7) * (4 * start + believed) / 5)


def test_the_others_fall_behind():
    policy = made()
    played(policy, arm=1, accepted=2)
    assert policy.unread.tolist() == [3, 1, 3]
    played(policy, NO_DRAFTER, 0, 0)
    assert policy.unread.tolist() == [4, 2, 4]


@pytest.mark.parametrize(
    ("guess", "believed", "readers"),
    [
        ([0.0, 1.0, 0.4], [0.05, 0.95, 0.4], [1]),
        ([0.6, 0.1, 0.8], [0.6, 0.1, 0.8], [2]),
        ([0.7, 0.1, 0.8], [0.7, 0.1, 0.8], [0, 2]),
        ([0.5, 0.1, 0.2], [0.5, 0.1, 0.2], [0]),
        ([0.4, 0.1, 0.4], [0.4, 0.1, 0.4], [0, 2]),
    ],
)
def test_a_warm_start_is_believed_within_limits_and_who_promises_to_be_fast_reads_the_prompt(
    monkeypatch, guess, believed, readers
):
    monkeypatch.setattr(rate_hedge, "READERS", 0.25)
    policy = make_policy("rate-hedge:start=previous", 3)
    policy.begin(Context(draft_length=K, previous=guess))
    assert list(policy.readers) == list(policy.candidates()) == readers
    assert policy.tokens[:, 0].tolist() == pytest.approx([1 + value for value in believed], abs=0.07)
    assert policy.belief.argmax(axis=1).tolist() == [abs(LEVELS - value).argmin() for value in believed]
    policy.begin(Context(draft_length=K))
    assert list(policy.candidates()) == [0, 1, 2], "nothing is known"


def test_an_evaluation_looks_back_32_positions():
    assert made().evaluation_span == 32


def test_a_single_drafter_is_never_evaluated():
    policy = policy_with(replace(STEADY, draft_step=np.full(1, 0.1), catch_up=np.zeros(1)), 1)
    policy.select()
    policy.elapsed = 1e6
    assert not policy.wants_evaluation(2)


def worth(policy):
    """Share of the time that the better of the two drafters that were not chosen would save on average."""
    paces = [min((1 + 0.1 * k) / (1 + sum(q**j for j in range(1, k + 1))) for k in range(1, K + 1)) for q in LEVELS]
    saved = [max(0.0, 1.0 - policy.rate * pace) for pace in paces]
    return max(float(np.dot(policy.expected[arm], saved)) for arm in (1, 2))


LEVELS = Levels(1).accepted[1]


@pytest.mark.parametrize(
    ("state", "cost", "share"),
    [
        ({}, 0.72, 1.0),
        ({"emitted": 4}, 0.76, 1.0),  # in rounds at which it looked at nothing
        ({"expected": np.eye(13)[[6, 7, 12]]}, 0.72, 1.0),
        ({"evaluating": 1.0}, 1.72, 0.03),  # all but the first keep within the budget
        ({"expected": np.eye(13)[[6, 1, 1]]}, 0.72, 0.0),  # none can be better
        ({"rate": 9.0}, 0.72, 0.0),
    ],
)
def test_an_evaluation_has_to_be_worth_its_time(state, cost, share):
    """It costs 0.7 and 0.01 for each of two tokens, which are less than was expected of the pair."""

    def asked(elapsed):
        policy = made()
        policy.select()
        vars(policy).update(state, elapsed=elapsed)
        return policy, policy.wants_evaluation(2)

    gain = share if share < 1.0 else 8 * worth(asked(1.0)[0])  # in eight times the text that there has been
    if not gain:
        assert not asked(1e6)[1]
    else:
        assert [asked(factor * cost / gain)[1] for factor in (0.99, 1.01)] == [False, True]


def test_what_is_found_out_is_of_use_until_the_next_change():
    """However long the text has been: with a change in two tokens it is not worth its time."""
    asked = []
    for memory in (0.5, 1):
        policy = made(spec=f"rate-hedge:memory={memory}")
        policy.select()
        policy.elapsed = 1e6
        asked.append(policy.wants_evaluation(2))
    assert asked == [False, True]


def test_after_an_evaluation_nobody_has_anything_to_read():
    policy = made()
    policy.evaluating = 1.0
    policy.unread[:] = 3.0, 7.0, 5.0
    tell(policy, [[1.0, 0.0, 1.0]])
    assert policy.evaluating == pytest.approx(1.75) and policy.unread.tolist() == [0.0] * 3
    assert policy.belief[0].tolist() == policy.belief[2].tolist() != policy.belief[1].tolist()


class Changing:
    """Costs of which a list is kept of how often they were read."""

    drafts, read = True, 0

    def costs(self, length):
        self.read += 1
        return STEADY


def test_every_8_rounds_costs_are_read():
    costs = Changing()
    policy = made(costs=costs)
    read = []
    for round_ in range(1, 33):
        before = costs.read
        played(policy)
        read += [round_] if costs.read > before else []
    assert read == [8, 16, 24, 32] and policy.t == 32


def test_what_was_played_is_estimated_at_once():
    policy = made()
    before = policy.tokens[:, 0].copy()
    played(policy, 1, 0)
    assert policy.tokens[[0, 2], 0] == pytest.approx(before[[0, 2]]) and policy.tokens[1, 0] < before[1]


def test_a_round_that_drafted_nothing_tells_of_no_drafter():
    policy = made()
    start = policy.belief.copy()
    played(policy, NO_DRAFTER, 0, 0)
    assert policy.belief == pytest.approx(start) and not policy.pairs.silent.any()
    policy.update(Feedback(0, 0, 0, 1, 0))  # no room for a draft
    assert policy.unread.max() + policy.emitted == 2 and policy.belief == pytest.approx(start)


def test_a_drafter_that_has_nothing_to_say_costs_no_more_than_no_draft():
    """One of its two drafts was empty, beside which four tokens' worth of evidence say that none is."""
    policy = made(spec="rate-hedge:memory=1")
    played(policy, drafted=0, accepted=0)
    played(policy, drafted=K, accepted=1)
    assert policy.pairs.silent.T.tolist() == [[2, 1], [0, 0], [0, 0]]
    policy.pairs._price()
    policy._conclude()
    always = [1.1, 1.2, 1.3, 1.4]
    assert policy.drafting[0] == pytest.approx([(5 * seconds + 1.0) / 6 for seconds in always])
    assert policy.drafting[1] == pytest.approx(always)


def test_chance_decides_between_drafters_that_seem_alike_by_prompt_and_seed(monkeypatch):
    """But not where one is better by more than 5 %; replays of a prompt play the same."""
    monkeypatch.setattr(rate_hedge, "LUCK", 0.05)

    def first(prompt, seed=0, costs=STEADY):
        policy = make_policy("rate-hedge", 3, seed=seed)
        policy.begin(Context(prompt, draft_length=K, costs=costs))
        return policy.select()

    played_first = [first(f"prompt {n}") for n in range(60)]
    assert {played_first.count(arm) >= 10 for arm in range(3)} == {True}
    assert played_first == [first(f"prompt {n}") for n in range(60)]
    assert len({first("prompt", seed) for seed in range(20)}) == 3
    better = replace(STEADY, draft_step=np.array([0.1, 0.05, 0.1]))
    assert {first(f"prompt {n}", costs=better) for n in range(60)} == {1}
    assert first("\ud800") in range(3), "a lone surrogate has no bytes of its own"
