"""The command that writes suites of held-out prompts."""

import json
import sys

import pytest

from multidraft.training.pocket.__main__ import main


@pytest.fixture
def suite(monkeypatch):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["training", "suite", *arguments])
        main()

    return run


def test_prompts_of_chosen_families(suite, tmp_path):
    file, again = tmp_path / "two.jsonl", tmp_path / "again.jsonl"
    for path in (file, again):
        suite("--file", str(path), "--only", "mixed", "--per-family", "3", "--seed", "5")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in rows] == ["mixed-0", "mixed-1", "mixed-2"]
    assert {row["task"] for row in rows} == {"mixed"} and len({row["prompt"] for row in rows}) == 3
    assert again.read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("family", "said"), [("poems", "unknown poems; choose among json, math"), ("general", "a drafter, not a family")]
)
def test_a_family_that_there_is_none_of(suite, tmp_path, capsys, family, said):
    with pytest.raises(SystemExit) as ended:
        suite("--file", str(tmp_path / "x.jsonl"), "--only", family)
    assert ended.value.code == 2 and said in capsys.readouterr().err
