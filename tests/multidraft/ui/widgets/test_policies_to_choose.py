from __future__ import annotations

import pytest

from multidraft.policies import POLICIES, policy_names
from multidraft.policies.titles import policy_choices
from multidraft.ui.widgets import policy_fields

DRAFTERS = ["code", "math"]


def test_a_policy_is_found_by_title_and_by_spec() -> None:
    offered = dict(map(reversed, policy_fields.with_specs(policy_choices(DRAFTERS))))
    assert offered["ucb"] == f"{POLICIES['ucb'].title} · ucb"
    assert offered["fixed:math"].endswith("· fixed:math")


@pytest.mark.parametrize("drafters", [DRAFTERS, ["code", "code-2", "ucb"], ["random"]])
def test_a_spec_or_title_that_is_typed_is_the_first_choice_with_it(drafters: list[str]) -> None:
    """Enter takes the first choice that has the text in it."""
    plain = policy_choices(drafters)
    offered = policy_fields.with_specs(plain)
    assert sorted(spec for _, spec in offered) == sorted(spec for _, spec in plain)
    for title, spec in plain:
        for typed in (spec, title):
            found = [chosen for label, chosen in offered if typed.lower() in label.lower()]
            assert found[0] == spec, f"{typed!r} + Enter"


def test_a_policy_with_settings_is_found_by_its_name() -> None:
    offered = policy_fields.with_specs([("Discounted UCB", "d-ucb"), ("UCB (reward=be)", "ucb:reward=be")])
    assert [spec for _, spec in offered] == ["ucb:reward=be", "d-ucb"]


def test_titles_alone_stand_in_that_order_too() -> None:
    offered = policy_fields.to_type(policy_choices(DRAFTERS))
    assert [spec for title, spec in offered if "normal" in title.lower()] == ["normal-hedge", "ada-normal-hedge"]


def test_explanation_carries_the_source() -> None:
    html = policy_fields.explanation_html("ucb", DRAFTERS)
    assert POLICIES["ucb"].source in html
    assert 'role="alert"' not in html


def test_a_bad_spec_says_what_is_wrong_and_is_escaped() -> None:
    html = policy_fields.explanation_html("<img src=x>", DRAFTERS)
    assert "<img" not in html and "&lt;img" in html
    assert not any(name in html for name in policy_names()), "the field above it lists them"
    assert 'role="alert"' in html
    assert "did you mean ucb?" in policy_fields.explanation_html("ucbb", DRAFTERS)
