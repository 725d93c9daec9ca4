"""Deletion: runs are gone from the history, its file and its copies, and stay gone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drafters.errors import UserError
from multidraft.__main__ import main
from storage import experiments, queries
from storage.connection import read_column, read_rows
from storage.deletion import delete
from storage.filters import Filter
from storage.imports import import_file
from storage.store import Store
from storage.sync import FILE, Backup, Folder, restore, snapshot
from storage.unfinished import unfinished
from tests.history import prompts
from tests.runs import make_round, make_run
from tests.storage.test_exchange import ANSWER, lines


def history(path: Path, *written: str, **changes: str) -> Path:
    with Store(path) as store:
        for prompt in written:
            store.add(make_run(prompt=prompt, **changes))
    return path


def test_what_is_deleted_leaves_neither_rows_nor_texts(path: Path) -> None:
    history(path, "secret one", "kept", "secret two")
    assert delete(path, Filter(id=(1, 3))) == 2
    assert prompts(path) == ["kept"] and read_column(path, "SELECT DISTINCT run_id FROM rounds") == [2]
    assert queries.count(path) == 1, "the counts of runs follow"
    for file in path.parent.glob(f"{path.name}*"):
        assert b"secret" not in file.read_bytes(), file


def test_a_number_is_not_used_again(path: Path) -> None:
    history(path, "one", "two")
    delete(path, Filter(id=(2,)))
    with Store(path) as store:
        kept = store.add(make_run(prompt="three"))
        assert kept.wait(10) and kept.ids == [3]
    other = history(path.with_name("other.db"), "four")
    restore(path, other)
    assert read_rows(path, "SELECT id, prompt FROM runs") == [(1, "one"), (3, "three"), (4, "four")]


@pytest.mark.parametrize("order", [[Filter(id=(3,)), Filter(id=(1,))], [Filter(policy=("ucb",))]])
def test_nor_is_that_of_runs_that_an_older_version_imported_with_one_time(path: Path, order: list[Filter]) -> None:
    with Store(path) as store:
        for tokens in (3, 2, 1):  # the index has them in another order
            same: dict[str, Any] = {"created_at": datetime(2026, 1, 1, tzinfo=UTC), "prompt": "one", "policy": "ucb"}
            store.add(make_run(rounds=[make_round(index) for index in range(tokens)], **same))
    for runs in order:
        delete(path, runs)
    with Store(path) as store:
        kept = store.add(make_run())
        assert kept.wait(10) and kept.ids == [4]


def test_a_store_that_is_open_goes_on_and_does_not_bring_a_run_up_to_date_that_is_gone(path: Path) -> None:
    with Store(path) as store:
        kept = store.add(make_run(prompt="one"))
        assert kept.wait(10) and delete(path, Filter(id=(1,))) == 1
        store.add(make_run(prompt="one, longer"), anew=kept)
        store.add(make_run(prompt="two"))
        assert store.flush()
    assert prompts(path) == ["two"] and read_column(path, "SELECT DISTINCT run_id FROM rounds") == [2]


def test_no_copy_brings_a_run_back_and_all_that_share_one_lose_it(path: Path, tmp_path: Path) -> None:
    place, theirs, older = Folder(tmp_path / "copy"), tmp_path / "theirs.db", tmp_path / "older.db"
    mine, other = Backup(path, [place]), Backup(theirs, [place])
    history(path, "one", "two")
    snapshot(path, older)
    mine.exchange()
    other.restore()
    history(theirs, "three")
    delete(path, Filter(id=(1,)))
    for each in (mine, other, mine):
        each.exchange()
        assert each.problem is None
    assert prompts(path) == prompts(theirs) == prompts(tmp_path / "copy" / FILE) == ["three", "two"]
    assert restore(path, older) == 0 and "one" not in prompts(path)
    assert restore(tmp_path / "new.db", older) == 2, "this undoes it"
    delete(path, Filter(until="9999"))
    mine.exchange()
    assert prompts(tmp_path / "copy" / FILE) == [], "also the last run of a history is deleted there"


def test_what_was_said_of_a_batch_goes_with_its_last_run(path: Path, tmp_path: Path) -> None:
    history(path, "one", "two", batch_id="b")
    with Store(path) as store:
        store.note("b", "private")
        store.add(ends="b", ending="stopped after 2 of 9 runs")
    older = tmp_path / "older.db"
    snapshot(path, older)
    delete(path, Filter(id=(1,)))
    assert experiments.note(path, "b") == "private"
    delete(path, Filter(batch_id=("b",)))
    restore(path, older)
    assert not experiments.note(path, "b") and not experiments.ending(path, "b")
    history(path, "of no batch")
    delete(path, Filter(since="2000"))
    with Store(path) as store:  # as from a page that is still open
        store.note("b", "private")
        store.note("c", "before its first run")
    assert not experiments.note(path, "b") and experiments.note(path, "c")


def test_the_command_counts_first_and_deletes_what_meets_all_options(path: Path, capsys) -> None:
    history(path, "one", "two", batch_id="b")
    command = ["delete", "--db", str(path)]
    for asked, count in ((["1"], "1 run"), (["--batch", "b"], "2 runs"), (["1", "--before", "2000-01-01"], "0 runs")):
        assert main([*command, *asked]) == 0
        assert capsys.readouterr().out == f"{path}: {count} to delete; with --yes that is done, for good\n"
    assert main([*command, "1", "--batch", "b", "--yes"]) == 0
    assert capsys.readouterr().out == f"{path}: 1 run deleted\n" and prompts(path) == ["two"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], "name the runs to delete"),
        (["2", "7", "--yes"], "has the number 7; nothing was deleted"),
        ([str(10**30), "--yes"], f"has the number {10**30}"),
        (["--batch", "c", "--yes"], "is of the batch 'c'"),
        (["--policies", "ucbspec", "--yes"], "has the policy 'ucbspec'"),
    ],
)
def test_the_command_deletes_nothing_that_was_not_named(path: Path, asked: list[str], said: str, capsys) -> None:
    history(path, "one", "two")
    assert main(["delete", "--db", str(path), *asked]) == 2
    assert said in capsys.readouterr().err and len(prompts(path)) == 2


def test_of_answers_to_one_question_only_the_chosen_one_is_deleted(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text(lines({**ANSWER, "choices": ANSWER["choices"] * 3, "tstamp": 1.7e9}))
    with Store(path) as store:
        assert import_file(file, store) == 3
    older = tmp_path / "older.db"
    snapshot(path, older)
    assert delete(path, Filter(id=(2,))) == 1
    assert restore(path, older) == 0 and read_column(path, "SELECT id FROM runs ORDER BY id") == [1, 3]
    delete(path, Filter(id=(1, 3)))
    with Store(path) as store, pytest.raises(UserError, match="was imported before and deleted, for good"):
        import_file(file, store)


def test_a_machine_that_loses_a_run_by_a_copy_does_not_use_its_number_again(path: Path, tmp_path: Path) -> None:
    place, theirs = Folder(tmp_path / "copy"), tmp_path / "theirs.db"
    history(path, "one", "two")
    Backup(path, [place]).exchange()
    Backup(theirs, [place]).restore()
    delete(path, Filter(id=(2,)))
    Backup(path, [place]).exchange()
    Backup(theirs, [place]).restore()
    history(theirs, "three")
    assert read_rows(theirs, "SELECT id, prompt FROM runs") == [(1, "one"), (3, "three")]


def test_a_batch_that_was_cut_off_does_not_go_on_once_it_is_deleted(path: Path) -> None:
    with Store(path) as store:
        store.add(begins=("b", {"items": [{"prompt": "secret"}]}))
        store.add(make_run(batch_id="b"))
    delete(path, Filter(batch_id=("b",)))
    assert not unfinished(path) and b"secret" not in path.read_bytes()


def test_what_is_no_day_is_refused_in_words(path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["delete", "--db", str(path), "--before", "2026-13-01"])
    assert "--before: must be a day such as 2026-01-31, got '2026-13-01'" in capsys.readouterr().err
