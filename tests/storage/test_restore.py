"""The runs of a backup, back in a history."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from multidraft.__main__ import main
from storage.connection import open_writer, read_rows
from storage.store import Store
from storage.sync import restore, snapshot
from storage.unfinished import unfinished
from tests.history import prompts
from tests.runs import make_run
from tests.storage.test_schema import write_old


@pytest.fixture
def backup(path: Path, tmp_path: Path) -> Path:
    """Of a history with one run, and another one under way."""
    with Store(path) as store:
        store.add(make_run(prompt="kept"))
        store.add(begins=("job", {"prompt": "under way"}))
    return Path(shutil.copyfile(path, tmp_path / "backup.db"))


def test_a_backup_is_added_once_while_a_store_writes(path: Path, backup: Path, tmp_path: Path, capsys, caplog) -> None:
    other, content = tmp_path / "other.db", backup.read_bytes()
    with Store(other, retry_seconds=0.01) as store:
        store.add(make_run(prompt="of now"))
        assert store.flush()
        for added in ("1 run", "0 runs"):
            assert main(["restore", str(backup), "--db", str(other)]) == 0
            assert capsys.readouterr().out == f"{other}: {added} added\n"
        store.add(make_run(prompt="later"))
        assert store.flush()
    assert prompts(other) == ["kept", "later", "of now"]
    assert backup.read_bytes() == content and "replaced" not in caplog.text
    assert [file.name for file in tmp_path.glob("backup.db*")] == ["backup.db"], "no log is written beside it"


def test_into_a_missing_history_nothing_comes_that_was_under_way(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    assert main(["restore", str(backup), "--db", str(new)]) == 0
    assert prompts(new) == ["kept"] and not unfinished(new)


def test_into_a_missing_folder(backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", str(backup), "--db", str(tmp_path / "none" / "new.db")]) == 2
    said = capsys.readouterr().err
    assert f"The folder {tmp_path / 'none'} of the database new.db does not exist: create it, or name another" in said


def test_a_backup_of_an_older_version(path: Path, tmp_path: Path) -> None:
    write_old(tmp_path / "old.db")
    assert main(["restore", str(tmp_path / "old.db"), "--db", str(path)]) == 0
    assert prompts(path) == ["p"] and not list(tmp_path.glob("*before*"))


@pytest.mark.parametrize("what", ["missing", "no database", "foreign", "truncated"])
def test_a_backup_that_is_none_changes_nothing(path: Path, backup: Path, tmp_path: Path, what: str, capsys) -> None:
    wrong = tmp_path / "wrong.db"
    if what == "no database":
        wrong.write_bytes(b"no database" * 100)
    elif what == "foreign":
        with sqlite3.connect(wrong) as connection:
            connection.execute("CREATE TABLE recipes (name TEXT)")
    elif what == "truncated":
        snapshot(path, wrong)
        wrong.write_bytes(wrong.read_bytes()[: wrong.stat().st_size // 2])
    before = path.read_bytes()
    assert main(["restore", str(wrong), "--db", str(path)]) == 2
    said = capsys.readouterr().err
    assert str(wrong) in said and said.count("\n") == 1 and "MULTIDRAFT_DB" not in said
    assert path.read_bytes() == before


def test_a_backup_behind_a_link_is_read_with_its_log(backup: Path, tmp_path: Path) -> None:
    link, db = tmp_path / "link.db", open_writer(backup, keeps=False)
    link.symlink_to(backup)
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("INSERT INTO notes VALUES ('b', 'only in the log')")
    db.conn.commit()
    restore(tmp_path / "new.db", link)
    db.close()
    assert read_rows(tmp_path / "new.db", "SELECT note FROM notes") == [("only in the log",)]


def test_a_history_is_no_backup_of_itself(backup: Path, capsys) -> None:
    assert main(["restore", str(backup), "--db", str(backup)]) == 2
    assert "is the history itself" in capsys.readouterr().err
