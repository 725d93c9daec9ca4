"""The command line: what it prints, what it writes, one clear line and status 2 on bad input."""

import json
import sqlite3

import pytest

from multidraft.__main__ import main, split_specs
from tests import tiny

PROMPT = tiny.texts(1, 7, 8)[0]


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "suite.jsonl"
    rows = [{"prompt": text, "task": "letters"} for text in tiny.texts(3, 3, 3)]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def test_generate_prints_the_answer_and_its_figures(pool_card, capsys):
    assert main(["generate", PROMPT, "--pool", str(pool_card), "--max-new-tokens", "20"]) == 0
    out, err = capsys.readouterr()
    assert out.strip() and "tokens/s" in err and "tokens per round" in err


def test_generate_as_json(pool_card, capsys):
    arguments = ["generate", PROMPT, "--pool", str(pool_card), "--max-new-tokens", "20", "--json"]
    assert main([*arguments, "--policy", "ucb"]) == 0
    ours = json.loads(capsys.readouterr().out)
    assert main([*arguments, "--policy", "autoregressive"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert ours["token_ids"] == plain["token_ids"] and ours["policy"] == "ucb"
    assert sum(len(r["tokens"]) for r in ours["rounds"]) == len(ours["token_ids"])
    assert plain["mean_accepted_tokens"] == 1.0


def test_bench_writes_report_and_history(pool_card, suite, tmp_path, capsys):
    report, db = tmp_path / "report.json", tmp_path / "runs.db"
    arguments = ["bench", str(suite), "--pool", str(pool_card), "--policies", "ucb:beta=0.1,reward=be,normal-hedge"]
    arguments += ["--max-new-tokens", "12", "--repeat", "2", "--limit", "2", "--out", str(report), "--db", str(db)]
    assert main(arguments) == 0
    policies = json.loads(report.read_text())["policies"]
    assert set(policies) == {"autoregressive", "ucb:beta=0.1,reward=be", "normal-hedge"}
    assert all(p["lossless"] is True and p["prompts"] == 2 and p["tokens"] > 0 for p in policies.values())
    assert policies["autoregressive"]["speedup"] == 1.0
    assert "normal-hedge" in capsys.readouterr().out
    with sqlite3.connect(db) as connection:
        rows = connection.execute("SELECT source, suite, task, status FROM runs").fetchall()
    assert len(rows) == 12 and {row[:3] for row in rows} == {("bench", "suite", "letters")}


def test_pool_prints_costs_and_matrix(pool_card, suite, capsys):
    arguments = ["pool", str(pool_card), "--matrix", "--suite", str(suite), "--max-new-tokens", "12"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "ms per drafted token" in out and "| drafter | letters |" in out
    assert main([*arguments, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["matrix"]["letters"]) == {"near", "lookup", "far", "alone"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", ""], "empty"),
        (["generate", "a" * 500], "context window"),
        (["generate", "abc", "--policy", "nonsense"], "normal-hedge"),
        (["generate", "abc", "--policy", "fixed:nobody"], "near"),
        (["generate", "abc", "--temperature", "-1"], "temperature"),
        (["generate", "abc", "--max-new-tokens", "0"], "max_new_tokens"),
        (["bench", "no-such-suite"], "no-such-suite"),
        (["bench", "pocket", "--limit", "0"], "--limit"),
        (["bench", "pocket", "--policies", "ucb:beta=x"], "beta"),
    ],
)
def test_bad_input_is_one_line_and_status_2(pool_card, capsys, arguments, said):
    assert main([*arguments, "--pool", str(pool_card)]) == 2
    out, err = capsys.readouterr()
    lines = err.strip().splitlines()
    assert said in lines[-1] and lines[-1].startswith("multidraft: ") and "Traceback" not in err and not out


def test_an_unknown_pool_names_the_bundled_ones(capsys):
    assert main(["pool", "nonsense"]) == 2
    assert "pocket" in capsys.readouterr().err


def test_bad_arguments_end_with_status_2(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["generate"])
    assert stop.value.code == 2 and "prompt" in capsys.readouterr().err


def test_settings_stay_with_their_spec():
    assert split_specs("ucb:beta=0.1,reward=be, normal-hedge,,fixed:math") == [
        "ucb:beta=0.1,reward=be",
        "normal-hedge",
        "fixed:math",
    ]
