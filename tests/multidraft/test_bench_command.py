"""``bench``: its table, its report, its history; what is said of what went wrong."""

import json
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

import multidraft as md
from multidraft.__main__ import main
from multidraft.policies import POLICIES
from storage import store
from tests import tiny

PROMPT = tiny.texts(1, 7, 8)[0]


def test_bench_writes_report_and_history(pool_card, suite, tmp_path, capsys):
    report, db = tmp_path / "report.json", tmp_path / "runs.db"
    arguments = ["bench", str(suite), "--pool", str(pool_card), "--policies", "ucb:beta=0.1,reward=be,normal-hedge"]
    arguments += ["--max-new-tokens", "12", "--repeat", "2", "--limit", "2", "--out", str(report), "--db", str(db)]
    assert main(arguments) == 0
    written = json.loads(report.read_text())
    assert written["settings"]["policies"] == ["ucb:beta=0.1,reward=be", "normal-hedge"]
    assert written["settings"]["repeat"] == written["settings"]["limit"] == 2
    assert written["settings"]["draft_length"] == md.load_pool(pool_card).draft_length
    assert written["runs"] == {"planned": 12, "done": 12} and written["interrupted"] is False
    assert abs(datetime.now(UTC) - datetime.fromisoformat(written["date"])) < timedelta(minutes=5)
    policies = written["policies"]
    assert set(policies) == {"autoregressive", "ucb:beta=0.1,reward=be", "normal-hedge"}
    assert all(p["lossless"] is True and p["prompts"] == 2 and p["tokens"] > 0 for p in policies.values())
    assert policies["autoregressive"]["speedup"] == 1.0
    assert "normal-hedge" in capsys.readouterr().out
    with sqlite3.connect(db) as connection:
        rows = connection.execute("SELECT source, suite, task, status FROM runs").fetchall()
    assert len(rows) == 12 and {row[:3] for row in rows} == {("bench", "suite", "letters")}


def test_an_interrupted_benchmark_reports_what_it_has(pool_card, suite, tmp_path, capsys, monkeypatch):
    from multidraft.commands import bench as cli

    run_suite = cli.run_suite

    def interrupted(*arguments, **settings):
        for index, run in enumerate(run_suite(*arguments, **settings)):
            if index == 4:
                raise KeyboardInterrupt
            yield run

    monkeypatch.setattr(cli, "run_suite", interrupted)
    report = tmp_path / "report.json"
    arguments = ["bench", str(suite), "--pool", str(pool_card), "--policies", "ucb", "--max-new-tokens", "8"]
    db = tmp_path / "runs.db"
    assert main([*arguments, "--out", str(report), "--db", str(db)]) == 130
    out, err = capsys.readouterr()
    assert "| ucb |" in out
    assert err.splitlines()[-1] == (
        "multidraft: interrupted after 4 of 6 runs. What was measured is kept: the table above, "
        f"the report {report}, the runs in {db}. The same command begins anew."
    )
    written = json.loads(report.read_text())
    assert written["policies"]["ucb"]["prompts"] == 2
    assert written["runs"] == {"planned": 6, "done": 4} and written["interrupted"] is True
    with sqlite3.connect(db) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (4,)


@pytest.fixture
def misbehaving(monkeypatch):
    """Of the policy ``round-robin``: it chooses a drafter that is not there."""
    monkeypatch.setattr(POLICIES["round-robin"], "select", lambda policy: 99)
    return "policy 'round-robin' chose drafter 99; there are 0 to 3"


def test_a_policy_that_misbehaves_fails_alone(pool_card, suite, misbehaving, capsys):
    arguments = [str(suite), "--pool", str(pool_card), "--policies", "round-robin,fixed:near", "--max-new-tokens", "8"]
    assert main(["bench", *arguments]) == 1
    out = capsys.readouterr().out
    assert "| round-robin | – | failed | – | – | – | – | – | – |" in out and "| fixed:near | " in out
    assert f"round-robin failed in 3 of 3 runs: {misbehaving}." in out
    assert main(["generate", PROMPT, "--pool", str(pool_card), "--policy", "round-robin"]) == 2
    assert capsys.readouterr().err == f"multidraft: {misbehaving}\n"


def test_runs_that_are_lost_underway_are_told_by_the_status(pool_card, suite, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(store, "_insert", full)
    monkeypatch.setattr(store.Store.close, "__defaults__", (0.2,))
    arguments = [str(suite), "--pool", str(pool_card), "--policies", "ucb", "--max-new-tokens", "8"]
    assert main(["bench", *arguments, "--db", str(tmp_path / "runs.db")]) == 1
    out, err = capsys.readouterr()
    assert "| ucb | " in out and "the history is incomplete: The disk" in err and "not written: 6" in err
