import gradio as gr
import pytest

from drafters.errors import UserError
from multidraft.policies import POLICIES, policy_names, settings_of
from multidraft.policies.titles import policy_choices
from multidraft.ui.widgets import policy_fields

DRAFTERS = ["code", "math"]


def form(policy: str, **changes: object) -> str:
    """The spec of a form with some fields changed."""
    settings = policy_fields.settings(policy, DRAFTERS)
    values = [changes.get(s.name, policy_fields.build(s).value) for s in settings]
    return policy_fields.spec_of(policy, settings, values, DRAFTERS)


@pytest.mark.parametrize("policy", policy_names())
def test_every_policy_has_a_form_of_all_its_settings(policy: str) -> None:
    settings = policy_fields.settings(policy, DRAFTERS)
    assert [s.name for s in settings] == list(settings_of(POLICIES[policy]))
    assert form(policy) == ("fixed:code" if policy == "fixed" else form(policy))  # it can be made as it is


def test_fields_are_what_settings_are() -> None:
    fields = [policy_fields.build(s) for s in policy_fields.settings("ucb", DRAFTERS)]
    assert [type(field) for field in fields] == [gr.Dropdown, gr.Number, gr.Dropdown]
    beta = policy_fields.settings("ucb", DRAFTERS)[1]
    assert (beta.default, beta.description, beta.minimum, beta.maximum) == (0.01, "weight of exploration", 0, 100)


def test_only_what_was_changed_is_in_the_spec() -> None:
    assert form("ucb") == "ucb"
    assert form("ucb", beta=0.25) == "ucb:beta=0.25"
    assert form("normal-hedge", every=3.0, loss="length") == "normal-hedge:loss=length,every=3"


@pytest.mark.parametrize(
    ("policy", "changes", "said"),
    [
        ("ucb", {"beta": None}, "beta is empty"),
        ("normal-hedge", {"every": 2.5}, "every must be a whole number, got 2.5"),
        ("ucb", {"beta": -1.0}, "beta must be a number from 0 to 100"),
        ("fixed", {"drafter": "a,b"}, "cannot hold a comma"),
        ("fixed", {"drafter": "sql"}, "choose one of: code, math"),
    ],
)
def test_bad_values_are_refused_with_what_is_valid(policy: str, changes: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        form(policy, **changes)


def test_several_policies_are_explained_one_after_the_other() -> None:
    html = policy_fields.explanations_html(["ucb", "nonsense", "fixed:math"], DRAFTERS)
    assert html.count("<p><b>") == 2 and "<b>UCB.</b>" in html and "How these policies choose" in html
    assert "How this policy chooses" in policy_fields.explanations_html(["ucb"], DRAFTERS)
    assert policy_fields.explanations_html(["nonsense"], DRAFTERS) == ""


def test_a_policy_among_several_is_told_by_its_title() -> None:
    html = policy_fields.explanation_html("fixed:math", DRAFTERS, titled=True)
    assert "<summary><b>One drafter (math).</b> You name one drafter" in html
    assert "<summary>You name" in policy_fields.explanation_html("fixed:math", DRAFTERS)


def test_what_was_typed_in_part_becomes_the_first_choice_that_has_it() -> None:
    offered = [("UCB", "ucb:reward=be"), ("Epsilon-greedy", "epsilon-greedy"), ("NormalHedge", "normal-hedge")]
    typed = ["ucb:beta=0.1", "eps", "HedgeS", "normalhedge", "epsilon-greedy"]
    assert policy_fields.completed(typed, offered) == ["ucb:beta=0.1", "epsilon-greedy", "HedgeS", "normal-hedge"]
    assert policy_fields.completed(["ucb", "exp3"], offered) == gr.skip(), "nothing to complete"


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
