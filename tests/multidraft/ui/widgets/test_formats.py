from __future__ import annotations

import pytest

from drafters.errors import UserError
from multidraft.ui.widgets.formats import count, sentence


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("empty.txt holds no prompt", "empty.txt holds no prompt."),
        ("max_new_tokens must be at least 1", "max_new_tokens must be at least 1."),
        ("max new tokens must be at least 1.", "Max new tokens must be at least 1."),
        ("top-p must be above 0", "Top-p must be above 0."),
        ("", "."),
    ],
)
def test_a_message_becomes_a_sentence_and_names_stay_as_they_are(message: str, said: str) -> None:
    assert sentence(UserError(message)) == said


def test_counts_have_one_form() -> None:
    assert [count(n, "token") for n in (0, 1, 2, 51200)] == ["0 tokens", "1 token", "2 tokens", "51,200 tokens"]
    assert [count(n, "policy") for n in (1, 2)] == ["1 policy", "2 policies"]
