"""``generate``, and the command itself."""

import subprocess
import sys

import pytest

from drafters.pool import Pool
from multidraft.__main__ import main
from multidraft.policies.ucb import UCB


def test_an_answer_to_a_foreign_prompt_is_told_to_be_one(pool_card, capsys, monkeypatch):
    asked = ["generate", "abc", "--pool", str(pool_card), "--max-new-tokens", "2"]
    assert main(asked) == 0 and "unlike the tasks of this pool" not in capsys.readouterr().err
    monkeypatch.setattr(Pool, "fits", lambda self, prompt: False)
    assert main(asked) == 0 and "unlike the tasks of this pool" in capsys.readouterr().err


def test_an_error_amid_an_answer_is_told_in_a_line_of_its_own(pool_card, capsys, monkeypatch):
    select, calls = UCB.select, iter([None, None])
    monkeypatch.setattr(UCB, "select", lambda self: select(self) if next(calls, 9) is None else 99)
    assert main(["generate", "abc", "--pool", str(pool_card), "--policy", "ucb"]) == 2
    out, err = capsys.readouterr()
    assert out.strip() and out.endswith("\n") and err.startswith("multidraft: policy 'ucb' chose drafter 99")


def test_the_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0 and capsys.readouterr().out.startswith("multidraft 0.")


def test_an_installed_command_is_the_same():
    script = "import sys; from multidraft.__main__ import command; sys.exit(command())"
    done = subprocess.run([sys.executable, "-c", script, "policies"], capture_output=True, text=True)
    assert done.returncode == 0 and "rate-hedge" in done.stdout


def test_without_any_output_to_write_to_the_work_is_done():
    command = [sys.executable, "-m", "multidraft", "policies"]
    told = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, timeout=60)
    assert (told.returncode, told.stderr) == (0, b"")
