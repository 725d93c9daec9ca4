from __future__ import annotations

import pytest

from multidraft.errors import UserError
from multidraft.policies import POLICIES, make_policy, policy_names
from multidraft.sampling import SamplingParams
from multidraft.ui import choices

DRAFTERS = ["code", "math"]


def test_every_policy_can_be_chosen_and_made() -> None:
    offered = choices.policy_choices(DRAFTERS)
    specs = [spec for _, spec in offered]
    assert {spec.partition(":")[0] for spec in specs} == set(policy_names()) - {"oracle"}
    assert {"fixed:code", "fixed:math"} <= set(specs)
    for spec in specs:
        make_policy(spec, DRAFTERS)


def test_titles_are_unique_and_the_default_comes_first() -> None:
    titles = [title for title, _ in choices.policy_choices(DRAFTERS)]
    assert len(set(titles)) == len(titles)
    assert choices.policy_choices(DRAFTERS)[0][1] == choices.DEFAULT_POLICY


def test_a_policy_is_found_by_title_and_by_spec() -> None:
    offered = dict(map(reversed, choices.with_specs(choices.policy_choices(DRAFTERS))))
    assert offered["ucb"] == f"{POLICIES['ucb'].title} · ucb"
    assert offered["fixed:math"].endswith("· fixed:math")


@pytest.mark.parametrize("drafters", [DRAFTERS, ["code", "code-2", "ucb"], ["random"]])
def test_a_spec_or_title_that_is_typed_is_the_first_choice_with_it(drafters: list[str]) -> None:
    """Enter takes the first choice that has the text in it."""
    plain = choices.policy_choices(drafters)
    offered = choices.with_specs(plain)
    assert sorted(spec for _, spec in offered) == sorted(spec for _, spec in plain)
    for title, spec in plain:
        for typed in (spec, title):
            found = [chosen for label, chosen in offered if typed.lower() in label.lower()]
            assert found[0] == spec, f"{typed!r} + Enter"


def test_a_policy_with_settings_is_found_by_its_name() -> None:
    offered = choices.with_specs([("Discounted UCB", "d-ucb"), ("UCB (reward=be)", "ucb:reward=be")])
    assert [spec for _, spec in offered] == ["ucb:reward=be", "d-ucb"]


def test_titles_keep_settings() -> None:
    assert choices.policy_title("ucb:beta=0.1,reward=be") == f"{POLICIES['ucb'].title} (beta=0.1, reward=be)"
    assert choices.policy_title("fixed:math") == f"{POLICIES['fixed'].title} (math)"
    assert choices.policy_title("nonsense") == "nonsense"


def test_explanation_carries_the_source() -> None:
    html = choices.explanation_html("ucb", DRAFTERS)
    assert POLICIES["ucb"].source in html
    assert 'role="alert"' not in html


def test_a_bad_spec_lists_the_valid_names_and_is_escaped() -> None:
    html = choices.explanation_html("<img src=x>", DRAFTERS)
    assert "<img" not in html and "&lt;img" in html
    assert all((name in html) == POLICIES[name].live for name in policy_names())
    assert 'role="alert"' in html


def test_parameters_from_the_pages_floats() -> None:
    params = choices.make_params(64.0, 0.5, 0.9, 40.0, 6.0)
    assert params == SamplingParams(64, 0.5, 0.9, 40, 6)
    assert isinstance(params.max_new_tokens, int)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ((None, 0, 1, 0, 6), "max new tokens"),
        ((64, None, 1, 0, 6), "temperature"),
        ((64, 0, 1, 0.5, 6), "top-k"),
        ((64, 0, 1, 0, float("inf")), "draft length"),
        ((0, 0, 1, 0, 6), "^max new tokens must be at least 1"),
        ((64, 0, 2, 0, 6), "^top-p must be above"),
        ((64, 0, 1, 0, 0), "^draft length must"),
        ((64, -1, 1, 0, 6), "temperature"),
        ((64, float("nan"), 1, 0, 6), "temperature"),
    ],
)
def test_bad_parameters_are_named(values: tuple[float, ...], word: str) -> None:
    with pytest.raises(UserError, match=word):
        choices.make_params(*values)
