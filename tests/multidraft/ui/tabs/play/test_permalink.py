"""What a link may ask of *Play*."""

import pytest

from drafters.errors import UserError
from drafters.pool import Pool
from multidraft.ui.tabs.play.permalink import read_link


def test_a_link_holds_prompt_policy_and_settings(pool: Pool) -> None:
    link = read_link({"prompt": "abc", "with_policy": "ucb", "temperature": "0.5", "run": "3"}, pool)
    assert link is not None and (link.prompt, link.policy, link.pool) == ("abc", "ucb", None)
    assert link.settings == (None, 0.5, None, None, None, None)
    assert link.named == ["prompt", "policy", "temperature"]
    assert read_link({"run": "3"}, pool) is None


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"temperature": "99"}, "temperature must be at most 2 here, got 99"),
        ({"max_new_tokens": "51"}, "max new tokens must be at most 50 here, got 51"),
        ({"max_new_tokens": "1234567"}, "max new tokens must be at most 50 here, got 1,234,567"),
        ({"draft_length": "400"}, "draft length must be at most 16 here, got 400"),
        ({"temperature": "warm"}, "temperature must be a number, got 'warm'"),
        ({"seed": "0.5"}, "seed must be a whole number"),
    ],
)
def test_what_the_page_has_no_field_for_is_refused(pool: Pool, query: dict[str, str], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        read_link(query, pool, most=50)
