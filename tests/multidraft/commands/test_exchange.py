"""``export`` and ``import``: runs exchanged with other tools."""

import json
import sqlite3
from contextlib import closing

import pytest

from multidraft.__main__ import main
from storage import queries
from storage.store import Store
from tests.runs import make_run
from tests.storage.test_exchange import ANSWER, lines


@pytest.fixture
def db(tmp_path):
    with Store(tmp_path / "runs.db") as store:
        store.add(make_run(policy="ucb"))
        store.add(make_run(policy="hedge"))
    return tmp_path / "runs.db"


def test_runs_go_out_and_come_back(db, tmp_path, capsys):
    out = tmp_path / "runs.zip"
    assert main(["export", "spec-bench.zip", str(out), "--db", str(db), "--policies", "ucb"]) == 0
    assert f"{out}: 1 run" in capsys.readouterr().out
    answers = tmp_path / "answers.jsonl"
    answers.write_text(lines(ANSWER))
    other = tmp_path / "other.db"
    assert main(["import", str(answers), "--db", str(other), "--name", "EAGLE-3"]) == 0
    assert queries.run(other, 1).generation.policy == "EAGLE-3"
    assert main(["export", "json", str(tmp_path / "runs.json"), "--db", str(other)]) == 0
    assert json.loads((tmp_path / "runs.json").read_text())[0]["output_tokens"] == 13


def test_runs_of_one_source_on_one_machine_are_exported(db, tmp_path, capsys):
    run, out = queries.run(db, 1), tmp_path / "runs.json"
    chosen = ["--sources", run.origin.source, "--hardware", run.conditions.hardware]
    assert main(["export", "json", str(out), "--db", str(db), *chosen]) == 0
    assert json.loads(out.read_text())
    assert main(["export", "json", str(out), "--db", str(tmp_path / "none.db")]) == 2
    assert "there is no database" in capsys.readouterr().err


def test_no_history_is_written_over(db, tmp_path, capsys):
    other = tmp_path / "other.db"
    with Store(other) as store:
        store.add(make_run())
    for command in (["export", "json"], ["export", "spec-bench.zip"], ["learn", "--export"]):
        assert main([*command, str(db), "--db", str(db)]) == 2
        assert "runs.db would be written over, which the command reads" in capsys.readouterr().err
        assert main([*command, str(other), "--db", str(db)]) == 2
        assert "other.db is a database, which would be lost; name another file" in capsys.readouterr().err
    assert queries.count(db) == 2 and queries.count(other) == 1


def test_files_that_were_imported_before_are_skipped(tmp_path, capsys):
    other, files = tmp_path / "other.db", [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    for number, file in enumerate(files):
        file.write_text(lines({**ANSWER, "question_id": number}))
    for given, said in ((files[:1], []), (files, ["1.jsonl"])):
        assert main(["import", *map(str, given), "--db", str(other)]) == 0
        skipped = capsys.readouterr().err.splitlines()
        assert len(skipped) == len(said) and all("skipped: 1.jsonl was imported before" in line for line in skipped)
    assert queries.count(other) == 2


def test_another_programs_database_is_named(tmp_path, capsys):
    with closing(sqlite3.connect(tmp_path / "recipes.db")) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    for command in (["export", "csv", str(tmp_path / "a.csv")], ["replay"], ["advise"], ["learn"]):
        assert main([*command, "--db", str(tmp_path / "recipes.db")]) == 2
        assert "is another program's database" in capsys.readouterr().err


def test_our_own_export_is_not_imported_but_its_history_restored(db, tmp_path, capsys):
    out, other = tmp_path / "one.json", tmp_path / "other.db"
    assert main(["export", "json", str(out), "--db", str(db)]) == 0
    assert main(["import", str(out), "--db", str(other)]) == 2
    assert "one.json, entry 1: this is multidraft's own export, which is for other" in (said := capsys.readouterr().err)
    assert "`multidraft restore runs.db --db other.db` adds the runs of one history to another" in said
    assert main(["restore", str(db), "--db", str(other)]) == 0 and queries.count(other) == queries.count(db)


def test_a_refused_import_leaves_no_empty_history(tmp_path):
    other = tmp_path / "other.db"
    assert main(["import", str(tmp_path / "none.jsonl"), "--db", str(other)]) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["export", "aiperf.zip", "{}/runs.zip", "--policies", "exp3"],
            "has the policy 'exp3'; policies there: hedge, ucb",
        ),
        (["export", "aiperf.zip", "{}/runs.zip", "--sources", "vllm"], "has the source 'vllm'; sources there: "),
        (
            ["export", "aiperf.zip", "{}/runs.zip", "--hardware", "another"],
            "has the hardware 'another'; hardware there: ",
        ),
        (["export", "csv", "{}/runs.csv", "--tasks", "none"], "has the task 'none'; tasks there: "),
        (["export", "csv", "{}/runs.csv", "--pool", "poket"], "has the pool 'poket'; pools there: "),
        (["export", "csv", "{}/runs.csv", "--pool", "none/card.yaml"], "no pool card"),
        (["export", "csv", "{}/runs.csv", "--draft-length", "99"], "has the draft length '99'; draft lengths there: "),
        (["export", "csv", "{}/runs.csv", "--batch", "gone"], "is of the batch 'gone'"),
        (["export", "csv", "{}/none/runs.csv"], "cannot be written"),
        (["import", "{}/none.jsonl"], "cannot be read"),
        (["import", "{}/runs.db"], "the runs of a history are added by `restore`"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(db, tmp_path, capsys, arguments, message):
    assert main([*(part.format(tmp_path) for part in arguments), "--db", str(db)]) == 2
    said = capsys.readouterr().err
    assert message.lower() in said.lower() and said.count("\n") == 1
    assert not (tmp_path / "runs.csv").exists() and not (tmp_path / "runs.zip").exists()
