from __future__ import annotations

from pathlib import Path

import pytest

from multidraft.__main__ import main
from multidraft.policies import POLICIES, custom

FILE = """
from multidraft.policies import Policy, register

@register
class First(Policy):
    name = "first"
    title = "First"
    explanation = "Always the first drafter."
    source = "a test"

    def select(self):
        return 0
"""


def test_a_policy_in_a_file_of_ones_own_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "mine.py").write_text(FILE)
    monkeypatch.setenv(custom.FILES, str(path))
    try:
        for _ in range(2):  # it is imported once
            assert main(["policies"]) == 0 and "| first | First |" in capsys.readouterr().out
    finally:
        POLICIES.pop("first", None)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("gone.py", None, "gone.py, which does not exist"),
        ("bad.py", "import nothing_of_this_name", "ModuleNotFoundError"),
        ("exits.py", "import sys\nsys.exit()", "exits.py cannot be imported: SystemExit"),
        ("mine.py", FILE.replace('"first"', '"ucb"'), "cannot be imported: First: there is a policy 'ucb' already"),
        ("mute.py", FILE.replace("source =", "origin ="), "cannot be imported: policy First needs the class attribute"),
        ("none.py", "x = 1", "none.py registers no policy; put @register above the class"),
        ("half.py", f"{FILE}\n1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_file_that_cannot_be_imported_ends_the_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str | None,
    said: str,
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    monkeypatch.setenv(custom.FILES, str(tmp_path / name))
    for _ in range(2):  # it is not taken for imported
        assert main(["policies"]) == 2 and said in capsys.readouterr().err
    assert "first" not in POLICIES
