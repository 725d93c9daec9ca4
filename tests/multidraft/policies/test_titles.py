from __future__ import annotations

from multidraft.policies import POLICIES, make_policy, policy_names
from multidraft.policies.titles import DEFAULT_POLICY, policy_choices, policy_title, policy_titles

DRAFTERS = ["code", "math"]


def test_every_policy_can_be_chosen_and_made() -> None:
    offered = policy_choices(DRAFTERS)
    specs = [spec for _, spec in offered]
    assert {spec.partition(":")[0] for spec in specs} == set(policy_names()) - {"oracle"}
    assert {"fixed:code", "fixed:math"} <= set(specs)
    for spec in specs:
        make_policy(spec, DRAFTERS)


def test_titles_are_unique_and_the_default_comes_first() -> None:
    titles = [title for title, _ in policy_choices(DRAFTERS)]
    assert len(set(titles)) == len(titles)
    assert policy_choices(DRAFTERS)[0][1] == DEFAULT_POLICY


def test_titles_keep_settings() -> None:
    assert policy_title("ucb:beta=0.1,reward=be") == f"{POLICIES['ucb'].title} (beta=0.1, reward=be)"
    assert policy_title("fixed:math") == f"{POLICIES['fixed'].title} (math)"
    assert policy_title("nonsense") == "nonsense"


def test_titles_that_would_be_equal_name_their_spec() -> None:
    ucb, other = POLICIES["ucb"].title, POLICIES["random"].title
    assert policy_titles(["ucb", "UCB", "random"]) == {"ucb": f"{ucb} · ucb", "UCB": f"{ucb} · UCB", "random": other}


def test_after_the_default_titles_are_in_the_order_of_the_alphabet_and_those_of_one_drafter_last() -> None:
    choices = policy_choices(DRAFTERS, routed=False)
    whole = [title.lower() for title, spec in choices if ":" not in spec]
    assert whole[1:] == sorted(whole[1:])
    assert choices[len(whole) :] == [(f"{POLICIES['fixed'].title}: {name}", f"fixed:{name}") for name in DRAFTERS]
    assert "router" not in dict(choices).values() and "router" in dict(policy_choices(DRAFTERS)).values()
