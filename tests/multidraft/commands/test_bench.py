"""``bench``: its table, its report, its history; what is said of what went wrong."""

import errno
import gc
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import multidraft as md
from drafters.pool import Pool
from multidraft.__main__ import main
from multidraft.bench import runner
from multidraft.commands import bench
from multidraft.policies import POLICIES
from multidraft.policies.titles import DEFAULT_POLICY
from storage import experiments, queries, store
from tests import tiny
from tests.history import recorded
from tests.runs import make_run

PROMPT = tiny.texts(1, 7, 8)[0]


def test_bench_writes_report_and_history(pool_card, suite, tmp_path, capsys):
    report, db = tmp_path / "report.json", tmp_path / "runs.db"
    policies = "ucb:beta=0.1,reward=be,UCB:beta=0.10,reward=be,AUTOREGRESSIVE,fixed:drafter=near"  # each once
    arguments = ["bench", str(suite), "--pool", str(pool_card), "--policies", policies]
    arguments += ["--max-new-tokens", "12", "--repeat", "2", "--limit", "2", "--out", str(report), "--db", str(db)]
    assert main(arguments) == 0
    written = json.loads(report.read_text())
    assert written["settings"]["policies"] == ["ucb:reward=be,beta=0.1", "autoregressive", "fixed:near"]
    assert written["settings"]["repeat"] == written["settings"]["limit"] == 2
    assert written["settings"]["draft_length"] == md.load_pool(pool_card).draft_length
    assert written["runs"] == {"planned": 12, "done": 12} and written["interrupted"] is False
    assert abs(datetime.now(UTC) - datetime.fromisoformat(written["date"])) < timedelta(minutes=5)
    policies = written["policies"]
    assert set(policies) == {"autoregressive", "ucb:reward=be,beta=0.1", "fixed:near"}
    assert all(p["lossless"] is True and p["prompts"] == 2 and p["tokens"] > 0 for p in policies.values())
    assert policies["autoregressive"]["speedup"] == 1.0
    out, err = capsys.readouterr()
    assert "fixed:near" in out
    runs = recorded(db)
    (batch,) = {run.origin.batch_id for run in runs}
    assert f"recorded as batch {batch}: advise --db {db} --batch {batch}" in err
    assert main([*arguments, "--temperature", "1"]) == 0
    assert re.search(r"recorded as batch \w+$", capsys.readouterr().err, re.MULTILINE), (
        "of sampled runs there is no advice"
    )
    assert main([*arguments, "--max-new-tokens", "4"]) == 0
    assert re.search(r"recorded as batch \w+$", capsys.readouterr().err, re.MULTILINE), "nor of short answers"
    assert len(runs) == 12 and {run.generation.policy for run in runs} == set(policies)
    assert {(run.origin.source, run.origin.suite, run.origin.task) for run in runs} == {("bench", "suite", "letters")}


@pytest.mark.parametrize("name", ["unread.jsonl", "unread.json", "unread.csv", "unread.txt"])
def test_a_suite_that_cannot_be_read(tmp_path, capsys, name):
    (tmp_path / name).symlink_to("/proc/self/mem")  # root may open any file, and cannot read the beginning of this one
    assert main(["bench", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err == f"multidraft: {name} cannot be read: Input/output error\n"


def test_a_report_is_written_over_no_suite_and_no_history(pool_card, suite, tmp_path, capsys):
    prompts, db, new = suite.read_text(), tmp_path / "runs.db", tmp_path / "new.db"
    with store.Store(db) as history:
        history.add(make_run())
    bench = ["bench", str(suite), "--pool", str(pool_card), "--policies", "ucb", "--max-new-tokens", "4"]
    for out, said in (
        (["--out", f"{suite.parent}/./{suite.name}"], f"{suite.name} would be written over, which the command reads"),
        (["--out", str(db)], "runs.db is a database, which would be lost; name another file"),
        (["--out", str(new), "--db", str(new)], "new.db would be written over, which the command reads or records in"),
    ):
        assert main([*bench, *out]) == 2
        assert said in capsys.readouterr().err
    assert suite.read_text() == prompts and queries.count(db) == 1 and not new.exists()


def test_a_full_disk_leaves_the_report_that_there_was(pool_card, suite, tmp_path, capsys, monkeypatch):
    report, write = tmp_path / "report.json", Path.write_text

    def full(path, text, **kind):
        write(path, text[:10], **kind)
        raise OSError(errno.ENOSPC, "No space left on device")

    report.write_text("what there was")
    (tmp_path / "link.json").symlink_to(report)
    bench = ["bench", str(suite), "--pool", str(pool_card), "--policies", "ucb", "--max-new-tokens", "4"]
    bench += ["--limit", "1", "--out", str(tmp_path / "link.json")]
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        assert main(bench) == 1
    assert "link.json could not be written (No space left on device)" in capsys.readouterr().err
    assert report.read_text() == "what there was" and not list(tmp_path.glob("*.part"))
    assert main(bench) == 0 and json.loads(report.read_text())["runs"]["done"] == 2
    assert main([*bench[:-1], "/dev/stdout"]) == 0
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert main(bench) == 2 and "(its folder takes no new files); name another file" in capsys.readouterr().err


@pytest.mark.parametrize("how", [[], ["--batch-size", "2"]])
def test_the_report_is_whole_where_the_table_is_not_read(pool_card, suite, tmp_path, monkeypatch, how):
    class Closed(io.StringIO):
        def write(self, _):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

        def fileno(self):
            return os.open(os.devnull, os.O_WRONLY)

    report = tmp_path / "report.json"
    bench = ["bench", str(suite), "--pool", str(pool_card), "--policies", "ucb", "--max-new-tokens", "4", *how]
    monkeypatch.setattr(sys, "stdout", Closed())
    assert main([*bench, "--out", str(report)]) == 1
    written = json.loads(report.read_text())["runs"]
    assert written["done"] == written["planned"] > 0


def test_lines_that_hold_no_prompt_are_told_in_the_report_too(pool_card, tmp_path, capsys):
    suite, report = tmp_path / "mine.jsonl", tmp_path / "report.json"
    suite.write_text('{"prompt": "a b"}\n{"prompt": 3}\n')
    arguments = ["bench", str(suite), "--pool", str(pool_card), "--policies", "fixed:near", "--max-new-tokens", "8"]
    assert main([*arguments, "--out", str(report)]) == 0
    (line,) = json.loads(report.read_text())["left_out"]
    assert line.startswith("mine: line 2: ") and f"multidraft: {line} (left out)\n" in capsys.readouterr().err


def test_what_is_there_before_is_set_aside_while_it_measures(pool_card, suite, monkeypatch):
    aside = []
    monkeypatch.setattr(bench, "_benchmark", lambda *_: aside.append(gc.get_freeze_count()) or 0)
    monkeypatch.setattr(bench, "_throughput", lambda *_: aside.append(gc.get_freeze_count()) or 0)
    for more in ([], ["--batch-size", "2"]):
        assert main(["bench", str(suite), "--pool", str(pool_card), *more]) == 0
    assert len(aside) == 2 and all(aside) and not gc.get_freeze_count()


def test_the_recommended_policy_is_compared_where_none_is_named(pool_card, suite, monkeypatch):
    compared = []
    monkeypatch.setattr(
        bench, "_benchmark", lambda _options, _pool, asked, _peers: compared.extend(asked.policies) or 0
    )
    assert main(["bench", str(suite), "--pool", str(pool_card)]) == 0 and DEFAULT_POLICY in compared


@pytest.mark.parametrize("start", ["router", "both"])
def test_a_start_that_a_pool_without_a_router_does_not_have(pool_card, suite, capsys, start):
    arguments = ["bench", str(suite), "--pool", str(pool_card), "--policies", "ucb,fixed:near", "--start", start]
    assert main(arguments) == 2 and "has no router, from which policies could begin" in capsys.readouterr().err


def test_a_suite_as_traffic(pool_card, suite, tmp_path, capsys):
    db, spec = tmp_path / "runs.db", "ucb:reward=be"
    other = tmp_path / "other.txt"  # the ids of its lines are those of the suite's
    other.write_text("abc\nabd\nacd\n")
    arguments = ["bench", str(suite), str(other), "--pool", str(pool_card), "--policies", spec]
    arguments += ["--start", "both", "--stream"]
    assert main([*arguments, "--max-new-tokens", "16", "--db", str(db)]) == 0
    curve = capsys.readouterr().out.split("Learning curve")[1]
    assert f"| {spec},start=traffic |" in curve and "prompts 1–6 |" in curve
    runs = recorded(db)[::-1]
    priors = {
        policy: [r.generation.prior for r in runs if r.generation.policy == policy]
        for policy in (spec, f"{spec},start=traffic")
    }
    assert set(priors[spec]) == {None}
    first, *later = priors[f"{spec},start=traffic"]
    assert first is None and [prior.lessons for prior in later] == [2 * (n + 1) for n in range(len(later))]
    assert main([*arguments, "--repeat", "2"]) == 2
    assert "leave out --repeat" in capsys.readouterr().err


def test_answers_too_short_for_a_speed_up_are_no_failure(pool_card, suite):
    arguments = ["bench", str(suite), "--pool", str(pool_card), "--policies", "ucb", "--max-new-tokens", "4"]
    assert main(arguments) == 0


def test_an_interrupted_benchmark_reports_what_it_has(pool_card, suite, tmp_path, capsys, monkeypatch):
    from multidraft.commands import bench as cli

    run_all = cli.SuiteRun.all

    def interrupted(suite):
        for index, run in enumerate(run_all(suite)):
            if index == 4:
                raise KeyboardInterrupt
            yield run

    monkeypatch.setattr(cli.SuiteRun, "all", interrupted)
    report = tmp_path / "report.json"
    arguments = ["bench", str(suite), "--pool", str(pool_card), "--policies", "ucb", "--max-new-tokens", "8"]
    db = tmp_path / "runs.db"
    assert main([*arguments, "--out", str(report), "--db", str(db)]) == 130
    out, err = capsys.readouterr()
    assert "| ucb |" in out
    assert err.splitlines()[-1] == (
        "multidraft: interrupted after 4 of 6 runs. The finished runs are in the table above, "
        f"the report {report}, the history {db}. The same command starts again from the beginning."
    )
    written = json.loads(report.read_text())
    assert written["policies"]["ucb"]["prompts"] == 2
    (listed,) = experiments.listed(db)
    assert listed["ending"] == "interrupted after 4 of 6 runs"
    assert written["runs"] == {"planned": 6, "done": 4} and written["interrupted"] is True
    with sqlite3.connect(db) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (4,)


def test_sigterm_interrupts_a_benchmark_and_a_character_that_cannot_be_shown_does_not(pool_card, suite):
    command = [sys.executable, "-m", "multidraft", *asked(suite, pool_card, "--repeat", "1000", policies="exp3")]
    known = {**os.environ, "PYTHONIOENCODING": "ascii"}
    with subprocess.Popen(command, env=known, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == "50/6000 runs\n"
        process.terminate()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "| exp3 |" in out and "\\u2013" in out
    assert "multidraft: interrupted after " in err


@pytest.fixture
def misbehaving(monkeypatch):
    """Of the policy ``round-robin``: it chooses a drafter that is not there."""
    monkeypatch.setattr(POLICIES["round-robin"], "select", lambda policy: 99)
    return "policy 'round-robin' chose drafter 99; there are 0 to 3, -1 for none, and -2 for all at once"


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

    monkeypatch.setattr(store, "run_row", full)
    monkeypatch.setattr(store.Store.close, "__defaults__", (0.2,))
    arguments = [str(suite), "--pool", str(pool_card), "--policies", "ucb", "--max-new-tokens", "8"]
    assert main(["bench", *arguments, "--db", str(tmp_path / "runs.db")]) == 1
    out, err = capsys.readouterr()
    assert "| ucb | " in out and "the history is incomplete: The disk" in err and "not written: 6" in err


def asked(suite, pool_card, *more, policies="ucb"):
    return ["bench", str(suite), "--pool", str(pool_card), "--policies", policies, "--max-new-tokens", "8", *more]


@pytest.fixture
def files(tmp_path):
    """A report and a history that are not there yet."""
    return tmp_path / "report.json", tmp_path / "runs.db"


def kept(files):
    return ["--out", str(files[0]), "--db", str(files[1])]


@pytest.mark.benched
@pytest.mark.parametrize(("temperature", "judge"), [("0", "acceptances"), ("1", "gamma")])
def test_a_drafter_that_cannot_be_judged_costs_no_table(
    pool_card, suite, files, capsys, monkeypatch, temperature, judge
):
    def broken(*_):
        raise RuntimeError("no such layer")

    load = Pool.__init__

    def loading(pool, *arguments, **settings):
        load(pool, *arguments, **settings)
        monkeypatch.setattr(pool.drafters[-1], judge, broken)

    monkeypatch.setattr(Pool, "__init__", loading)
    assert main(asked(suite, pool_card, *kept(files), "--temperature", temperature)) == 1
    out = capsys.readouterr().out
    said = "its output cannot be scored: RuntimeError: no such layer (drafter alone)"
    assert f"ucb failed in 3 of 3 runs: {said}." in out and "| autoregressive | 1.00x |" in out
    assert {failure["error"] for failure in json.loads(files[0].read_text())["failures"]} == {said}
    runs = [run.generation for run in recorded(files[1])]
    assert len(runs) == 6 and {run.error for run in runs if run.policy == "ucb"} == {said}


def test_an_error_underway_leaves_what_is_measured(pool_card, suite, files, capsys, monkeypatch):
    runs = iter(range(100))
    seed_of = runner.seed_of

    def broken(*arguments):
        if next(runs) == 4:  # two prompts under two policies are done
            raise RuntimeError("out of luck")
        return seed_of(*arguments)

    monkeypatch.setattr(runner, "seed_of", broken)
    assert main(asked(suite, pool_card, *kept(files))) == 1
    out, err = capsys.readouterr()
    assert "| ucb | " in out and "stopped after 4 of 6 runs: RuntimeError: out of luck. The finished runs are in" in err
    assert json.loads(files[0].read_text())["interrupted"] is True and queries.count(files[1]) == 4


def test_a_report_that_cannot_be_written_in_the_end_costs_no_run(pool_card, suite, files, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(files[0]), "write_text", full)
    assert main(asked(suite, pool_card, *kept(files))) == 1
    out, err = capsys.readouterr()
    assert "| ucb | " in out and f"--out: {files[0]} could not be written (No space left on device)" in err
    assert queries.count(files[1]) == 6


def test_an_output_that_is_not_that_of_plain_decoding_is_told_by_the_status(pool_card, suite, capsys, lossy_ucb):
    assert main(asked(suite, pool_card, policies="ucb,fixed:near")) == 1
    out = capsys.readouterr().out
    assert "ucb is not lossless: an output (letters) is not the target's own greedy one" in out
    assert out.count("is not lossless") == 1


@pytest.mark.parametrize(("pool", "policy"), [("no-such-pool", "ucb"), (None, "fixed:nobody")])
def test_a_refusal_leaves_no_files_behind(pool_card, suite, files, pool, policy):
    folder = files[0].parent
    before = set(folder.iterdir())
    assert main(asked(suite, pool or pool_card, *kept(files), policies=policy)) == 2
    assert set(folder.iterdir()) == before


def test_a_refusal_leaves_files_that_were_there(pool_card, suite, files):
    files[0].write_text("{}")
    assert main(asked(suite, pool_card, *kept(files))) == 0 and main(asked(suite, "no-such-pool", *kept(files))) == 2
    assert json.loads(files[0].read_text())["policies"] and queries.count(files[1]) == 6
