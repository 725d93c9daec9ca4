"""What messages quote stays short."""

import pytest

from drafters.errors import LONGEST_MESSAGE, PolicyError, UserError, error_message, quoted, without_folders


def test_a_long_message_loses_its_middle():
    error = PolicyError("unknown policy '" + "x" * 100_000 + "'; choose one of ucb, exp3")
    assert str(error).startswith("unknown policy 'xxx") and str(error).endswith("xxx'; choose one of ucb, exp3")
    assert len(str(error)) == LONGEST_MESSAGE + 3 and error_message(error) == str(error)
    assert str(UserError("x" * LONGEST_MESSAGE)) == "x" * LONGEST_MESSAGE


nested: list = []
for _ in range(100_000):
    nested = [nested]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        ("a'b", '"a\'b"'),
        ("x" * 100, "'" + "x" * 39 + "…"),
        (10**5000, "a value of type int that is too large to print"),
        (nested, "a value of type list that is too large to print"),
    ],
    ids=["int", "str", "long", "digits", "nested"],
)
def test_values_are_quoted_in_few_characters(value, text):
    assert quoted(value) == text


def test_errors_that_no_user_caused_are_named_with_their_notes():
    error = KeyError("x")
    error.add_note("drafter math")
    assert error_message(error) == "KeyError: 'x' (drafter math)" and error_message(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("The database /srv/me/runs.db is locked", "The database runs.db is locked"),
        ("No such file: '/home/me/a/b.txt'", "No such file: 'b.txt'"),
        ("~/a/b and C:\\Users\\me\\b", "b and b"),
        ("see https://a.b/c/d, 3/4, a/b/c, 2 MB/s", "see https://a.b/c/d, 3/4, a/b/c, 2 MB/s"),
    ],
)
def test_folders_are_not_told(text: str, shown: str):
    assert without_folders(text) == shown
    assert error_message(OSError(text)) == f"OSError: {shown}"
