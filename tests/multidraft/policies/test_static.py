"""Policies that do not learn."""

from collections import Counter

import pytest

from multidraft.policies import ALL_DRAFTERS, NO_DRAFTER, Context, Feedback, make_policy


def play(policy, rounds):
    """Arms of so many rounds, each of which accepts one token of four."""
    arms = []
    for _ in range(rounds):
        arms.append(policy.select())
        policy.update(Feedback(arms[-1], drafted=4, accepted=1, emitted=2, draft_length=4))
    return arms


@pytest.mark.parametrize("arms", [0, 3])
def test_autoregressive_never_drafts(arms):
    policy = make_policy("autoregressive", arms)
    assert play(policy, 5) == [NO_DRAFTER] * 5
    assert policy.probabilities() is None


def test_fixed_plays_the_named_drafter():
    policy = make_policy("fixed:code", ["math", "code", "news"])
    assert play(policy, 4) == [1] * 4
    assert make_policy("fixed:drafter=news", ["math", "code", "news"]).select() == 2
    assert policy.probabilities() is None


def test_round_robin_takes_turns_and_starts_over():
    policy = make_policy("round-robin", 3)
    assert play(policy, 7) == [0, 1, 2, 0, 1, 2, 0]
    policy.begin()
    assert play(policy, 2) == [0, 1]
    assert policy.select() == policy.select() == 2  # asking again does not pass the turn on


def test_random_is_seeded_and_uniform():
    policy = make_policy("random", 4, seed=3)
    arms = play(policy, 4000)
    assert arms == play(make_policy("random", 4, seed=3), 4000)
    assert arms != play(make_policy("random", 4, seed=4), 4000)
    assert policy.probabilities() == [0.25] * 4
    assert all(abs(count / 4000 - 0.25) < 0.03 for count in Counter(arms).values())
    policy.begin()
    assert play(policy, 50) == arms[:50]


def test_all_drafters_draft_a_tree_of_so_many_nodes():
    policy = make_policy("draft-all:nodes=40", 3)
    assert play(policy, 3) == [ALL_DRAFTERS] * 3
    assert (policy.tree_nodes, make_policy("draft-all", 3).tree_nodes) == (40, 128)


@pytest.mark.parametrize(("suited", "arm"), [([0.1, 0.2, 0.9], 2), ([0.5, 0.5, 0.1], 0), (None, 0)])
def test_the_router_s_favourite_is_played_throughout(suited, arm):
    policy = make_policy("router", 3)
    policy.begin(Context("prompt", route=lambda prompt: suited if prompt == "prompt" else None))
    assert play(policy, 3) == [arm] * 3 and list(policy.candidates()) == [arm]
    assert policy.needs_route


@pytest.mark.parametrize(("rounds", "arm"), [([9, 4, 7], 1), ([5, 4, 4], 1), (None, 0)])
def test_the_oracle_plays_who_needs_the_fewest_rounds(rounds, arm):
    policy = make_policy("oracle", 3)
    policy.begin(Context(hindsight=rounds))
    assert play(policy, 3) == [arm] * 3
    assert not policy.live
