"""The command that writes suites of held-out prompts."""

import json
import subprocess
import sys


def suite(*arguments):
    command = [sys.executable, "-m", "drafters.training", "suite", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_prompts_of_chosen_families(tmp_path):
    file = tmp_path / "two.jsonl"
    made = suite("--file", str(file), "--only", "mixed", "--per-family", "3", "--seed", "5")
    assert made.returncode == 0, made.stderr
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in rows] == ["mixed-0", "mixed-1", "mixed-2"]
    assert {row["task"] for row in rows} == {"mixed"} and len({row["prompt"] for row in rows}) == 3
    again = tmp_path / "again.jsonl"
    suite("--file", str(again), "--only", "mixed", "--per-family", "3", "--seed", "5")
    assert again.read_bytes() == file.read_bytes()


def test_a_family_that_there_is_none_of(tmp_path):
    wrong = suite("--file", str(tmp_path / "x.jsonl"), "--only", "poems")
    assert wrong.returncode == 2 and "unknown poems; choose among json, math" in wrong.stderr
    wrong = suite("--file", str(tmp_path / "x.jsonl"), "--only", "general")
    assert wrong.returncode == 2 and "a drafter, not a family" in wrong.stderr
