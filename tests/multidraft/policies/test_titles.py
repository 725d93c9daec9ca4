from __future__ import annotations

from multidraft.policies import POLICIES, make_policy, policy_names
from multidraft.policies.titles import DEFAULT_POLICY, policy_choices, policy_title

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
