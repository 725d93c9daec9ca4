"""Replays on tables small enough to walk by hand: what policies are told, and the time."""

import numpy as np
import pytest

from drafters.base import Acceptances, hits_by_depth
from drafters.costs import Costs
from drafters.errors import PolicyError
from multidraft.policies import NO_DRAFTER, Policy
from multidraft.replay.walk import Replayed, best_fixed_rate, replay

TABLE = np.array([[1, 0, 2, 0, 0, 1, 0, 0]])
"""At a draft length of 2 the rounds emit 2, 3, 2 and 1 tokens; there is no room for a draft in the last."""
COSTS = Costs(np.array([0.1]), np.array([0.01]), np.array([1.0, 1.1, 1.2]), evaluate=0.5, evaluate_token=0.1)


class Asking(Policy):
    """Plays the first drafter, asks for an evaluation after its second round, and keeps what it is told."""

    name = "asking"
    uses_gamma = True
    evaluation_span = None

    def reset(self):
        self.told, self.asked, self.selections = [], [], 0

    def select(self):
        self.selections += 1
        return 0

    def wants_evaluation(self, emitted):
        self.asked.append(emitted)
        return len(self.asked) == 2

    def update(self, feedback):
        self.told.append(feedback)


def test_figures_of_a_replay():
    played = Replayed([0, NO_DRAFTER, 1, 1], [4, 0, 4, 4], [3, 1, 2, 2], (1,), 3, 4.0)
    assert (played.rounds, played.regret, played.mean_accepted_tokens) == (4, 1, 2.0)
    assert (played.drafted_rounds, played.best_arm_rounds, played.best_arm_ratio) == (3, 2, 2 / 3)
    assert played.tokens_per_second == 2.0


def test_figures_of_no_rounds():
    played = replay(np.zeros((2, 0), dtype=int), "ucbspec")
    assert (played.rounds, played.regret, played.mean_accepted_tokens, played.best_arm_ratio) == (0, 0, 0.0, 0.0)
    assert played.seconds is None and played.tokens_per_second is None
    assert replay(np.zeros((1, 0), dtype=int), "ucbspec", costs=COSTS).seconds == 0


def test_what_a_policy_is_told_and_the_time():
    """Unread before the rounds are 0, 1, and again 0 tokens, since after the second all were evaluated: of the draft
    accepted there the target's own token was still to be read."""
    policy = Asking(["a"])
    played = replay(TABLE, policy, draft_length=2, costs=COSTS)
    assert (played.arms, played.lengths, played.emitted) == ([0, 0, 0, NO_DRAFTER], [2, 2, 2, 0], [2, 3, 2, 1])
    assert (played.best_arms, played.best_rounds) == ((0,), 4)
    assert [(f.arm, f.drafted, f.accepted, f.emitted, f.draft_length) for f in policy.told] == [
        (0, 2, 1, 2, 2),
        (0, 2, 2, 3, 2),
        (0, 2, 1, 2, 2),
    ]
    assert policy.asked == [2, 3, 2] and policy.selections == 3
    assert [f.seconds for f in policy.told] == pytest.approx([0.2 + 1.2, 0.2 + 0.01 + 1.2, 0.2 + 1.2])
    assert played.seconds == pytest.approx(1.4 + 1.41 + (0.5 + 1 * 0.1) + 1.4 + 1.0)
    assert [f.gamma is None for f in policy.told] == [True, False, True]
    np.testing.assert_array_equal(policy.told[1].gamma, hits_by_depth(TABLE, 2)[:5])


@pytest.mark.parametrize(("span", "first"), [(2, 3), (50, 0)])
def test_an_evaluation_of_the_last_positions_costs_as_much(span, first):
    policy = Asking(["a"])
    policy.evaluation_span = span
    played = replay(TABLE, policy, draft_length=2, costs=COSTS)
    np.testing.assert_array_equal(policy.told[1].gamma, hits_by_depth(TABLE, 2)[first:5])
    assert played.seconds == pytest.approx(5.81)


def test_without_costs_rounds_take_no_time():
    policy = Asking(["a"])
    assert replay(TABLE, policy, draft_length=2).seconds is None
    assert [f.seconds for f in policy.told] == [0.0] * 3
    policy.uses_gamma = False
    replay(TABLE, policy, draft_length=2)
    assert policy.asked == [] and {f.gamma for f in policy.told} == {None}


def test_a_policy_may_draft_nothing():
    class Silent(Asking):
        def draft_length(self, limit):
            return 0

    policy = Silent(["a"])
    played = replay(TABLE, policy, costs=COSTS)
    assert played.arms == [NO_DRAFTER] * 8 and played.lengths == [0] * 8 and played.emitted == [1] * 8
    assert {(f.arm, f.drafted, f.accepted, f.draft_length) for f in policy.told} == {(0, 0, 0, 0)}
    assert played.seconds == pytest.approx(8 * 1.0 + 0.5 + 2 * 0.1)


def test_what_a_policy_raises_is_told_as_its_fault_and_what_others_raise_is_not(monkeypatch):
    class Failing(Asking):
        def update(self, feedback):
            raise IndexError("no such drafter")

    with pytest.raises(PolicyError, match="policy 'asking' raised IndexError: no such drafter"):
        replay(TABLE, Failing(["a"]))
    monkeypatch.setattr(Costs, "verification", lambda costs, nodes: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        replay(TABLE, "fixed:arm0", costs=COSTS)


@pytest.mark.parametrize("table", [[0, 1], [[0, -1]], np.zeros((0, 2))])
def test_a_table_holds_counts_by_drafter_and_position(table):
    with pytest.raises(ValueError, match="table must be an array of counts"):
        replay(np.array(table), "random")


def test_the_draft_length_is_the_longest_acceptance_unless_it_is_given():
    assert replay(TABLE, "fixed:arm0").lengths == [2, 2, 2, 0]
    assert replay(np.zeros((1, 3), dtype=int), "fixed:arm0").lengths == [1, 1, 0]
    assert replay(TABLE, "fixed:arm0", draft_length=1).emitted == [2, 2, 1, 2, 1]
    assert replay(TABLE, "fixed:arm0", draft_length=2, max_new_tokens=20).lengths == [2, 2, 2, 2]
    # All that is left of the text is accepted: there is no token of the target's own.
    whole = replay(np.array([[2, 0]]), "fixed:arm0", max_new_tokens=20)
    assert whole.emitted == whole.accepted == [2]


def test_the_seed_is_0_unless_it_is_given():
    table = np.zeros((4, 40), dtype=int)
    assert replay(table, "random").arms == replay(table, "random", 0).arms != replay(table, "random", 1).arms


def test_what_a_router_sees_and_that_there_is_one():
    table = np.zeros((2, 5), dtype=int)
    with pytest.raises(PolicyError, match="policy 'router' needs a router"):
        replay(table, "router")
    routes = {"sums": [0.1, 0.9]}
    assert replay(table, "router", prompt="sums", route=routes.get).arms[0] == 1


def test_drafts_of_all_share_what_is_accepted():
    """One accepted of three nodes and two of four: a tree of 2 + 2 + 2 nodes, drafted by both."""
    accepted, drafted, nodes = ([[1, 0, 0], [2, 0, 0]], [[3, 1, 1], [2, 1, 1]], [[3, 1, 1], [4, 1, 1]])
    costs = Costs(np.array([0.1, 0.2]), np.zeros(2), 1.0 + 0.1 * np.arange(9))
    table = Acceptances(np.array(accepted), np.array(drafted), np.array(nodes))
    played = replay(table, "draft-all", draft_length=3, max_new_tokens=9, costs=costs)
    assert (played.arms, played.emitted) == ([1], [3])
    assert played.seconds == pytest.approx(0.3 + 0.4 + 1.6)
    policy = Asking(["a", "b"])
    replay(Acceptances(*(np.array(part)[::-1] for part in (accepted, drafted, nodes))), policy, draft_length=3)
    assert (policy.told[0].drafted, policy.told[0].accepted) == (2, 2)  # a tree's depth, not its nodes


@pytest.mark.parametrize(("most", "seconds"), [(None, 1.2 + 1.0), (5, 1.2 + (0.1 + 0.01 + 1.1))])
def test_the_best_fixed_pair_by_hand(most, seconds):
    """Three tokens in two rounds, of which the second has room for a draft where the text ended at a stop token."""
    found = best_fixed_rate(np.array([[1, 0, 0]]), COSTS, range(2), most)
    assert found == (pytest.approx(3 / seconds), 0, 1)


def test_the_best_fixed_pair_pays_for_the_nodes_of_its_trees():
    table = Acceptances(np.array([[1, 0]]), np.array([[1, 1]]), np.array([[2, 2]]))
    assert best_fixed_rate(table, COSTS, [1]) == (pytest.approx(2 / (0.1 + 1.2)), 0, 1)
    slow = Costs.uniform(1, 4, step=100.0, verify=1000.0)
    assert best_fixed_rate(table, slow, [1]) == (pytest.approx(2 / 1100), 0, 1)


def test_drafters_that_have_not_read_the_prompt_read_it_when_they_are_first_asked():
    class Second(Asking):
        def candidates(self):
            return [0]

        def select(self):
            return 1

    policy = Second(["a", "b"])
    costs = Costs(np.array([0.1, 0.1]), np.array([0.0, 0.01]), np.array([1.0, 1.1, 1.2]), evaluate_token=0.1)
    played = replay(np.repeat(TABLE, 2, axis=0), policy, draft_length=2, costs=costs, prompt_tokens=100)
    assert policy.context.prompt_tokens == 100
    first, second, third = (f.seconds for f in policy.told)
    assert (first, second, third) == pytest.approx((0.2 + 1.0 + 1.2, 0.2 + 0.01 + 1.2, 0.2 + 1.2))
    # After two rounds one has read none of five tokens, the other all but the last.
    assert played.seconds == pytest.approx(first + second + third + 1.0 + 0.1 * (5 + 1) / 2)
