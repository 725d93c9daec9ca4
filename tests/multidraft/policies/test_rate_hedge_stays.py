"""``rate-hedge`` plays a pair again that yields what was expected of it."""

from dataclasses import replace

import numpy as np
import pytest

from multidraft.policies import NO_DRAFTER, Feedback
from multidraft.policies.rate_hedge import REFRESH
from tests.multidraft.policies.test_rate_hedge import K, no_luck  # noqa: F401
from tests.multidraft.policies.test_rate_hedge_decisions import STEADY, made, played


def test_a_pair_that_yields_what_was_expected_is_played_again_and_what_it_showed_is_learnt_with_the_next_round():
    policy, other = made(spec="rate-hedge:memory=1"), made(spec="rate-hedge:memory=1")
    policy.pairs.silent[:] = other.pairs.silent[:] = 0.0
    assert policy.select() == 0 and policy.draft_length(K) == K
    before, policy.luck[:] = policy.tokens.copy(), [[0.01], [1.0], [1.0]]
    assert policy.rate * policy.seconds == pytest.approx(before[0, -1]) and 2 < before[0, -1] < 3
    played(policy, accepted=2)
    assert policy.stays and (policy.tokens == before).all() and policy.elapsed == policy.seconds
    assert policy.select() == 0 and policy.draft_length(2) == 2, "another would be chosen"
    played(policy, accepted=1)
    assert not policy.stays and policy.select() == 1
    for accepted in (2, 1):  # the same with a choice in each round
        other.update(Feedback(0, K, accepted, accepted + 1, K))
    assert policy.belief == pytest.approx(other.belief) and policy.unread == pytest.approx(other.unread)


def test_what_a_pair_showed_is_its_own_where_the_next_draft_could_not_be_verified():
    policy = made(spec="rate-hedge:memory=1")
    assert policy.select() == 0 and policy.draft_length(K) == K
    before = policy.belief.copy()
    played(policy, accepted=K)
    assert policy.stays and policy.select() == 0
    played(policy, NO_DRAFTER, 0, 0)
    assert (
        not policy.stays
        and policy.belief[1:] == pytest.approx(before[1:])
        and policy.belief[0] != pytest.approx(before[0])
    )


@pytest.mark.parametrize(
    "of", ["a try", "an evaluation", "the time to read costs", "the call for a longest draft", "what it had to read"]
)
def test_no_pair_stays_in_spite_of(of):
    policy = made()
    assert policy.select() == 0 and policy.draft_length(K) == K
    policy.probing = of == "a try"
    policy.t += (REFRESH - 1) * (of == "the time to read costs")
    policy.whole = 2 * (of == "the call for a longest draft")
    policy.unread[0] = 5.0 * (of == "what it had to read")
    accepted = length = 3 if policy.whole else K
    played = Feedback(0, length, accepted, accepted + 1, length)
    policy.update(replace(played, gamma=np.ones((1, K, 3))) if of == "an evaluation" else played)
    assert not policy.stays


def test_in_a_batch_shorter_drafts_accepted_whole_call_for_no_longer_one():
    policy = made(costs=replace(STEADY, texts=2))
    policy.unread[:] = 0.0
    assert policy.select() == 0 and policy.draft_length(3) == 3
    policy.whole = 2
    policy.update(Feedback(0, 3, 3, 4, 3))
    assert policy.stays


def test_a_draft_of_another_drafter_is_learnt_apart():
    """Where rounds are not its own, as when a recorded run is decoded again."""
    policy, other = made(spec="rate-hedge:memory=1"), made(spec="rate-hedge:memory=1")
    assert policy.select() == 0 and policy.draft_length(K) == K
    for of in (policy, other):
        played(of, accepted=K)
        played(of, arm=1, accepted=0)
    assert not policy.stays and policy.belief == pytest.approx(other.belief)


def test_while_a_pair_stays_nothing_is_evaluated():
    policy = made()
    assert policy.select() == 0 and policy.draft_length(K) == K
    policy.elapsed = 1e9
    assert policy.wants_evaluation(1) and not policy.wants_evaluation(4)
