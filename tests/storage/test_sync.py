"""Copies of the history in a folder, and in a dataset on a made-up Hub that keeps files by commit."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError

from storage import sync
from storage.connection import read_rows
from storage.run import Scores
from storage.store import Store
from storage.sync import FILE, Backup, Dataset, Folder, snapshot
from tests.history import add, prompts
from tests.runs import make_run


def refused(status: int, text: str = "refused") -> HfHubHTTPError:
    kind = RepositoryNotFoundError if status == 404 else HfHubHTTPError
    return kind(text, response=httpx2.Response(status, request=httpx2.Request("GET", "https://hub")))


class FakeHub:
    """What :class:`Dataset` calls of ``HfApi``, with its arguments and its errors."""

    def __init__(self) -> None:
        self.commits: list[dict[str, bytes]] = []
        self.private: bool | None = None
        self.squashed = self.uploads = 0
        self.down: Exception | None = None
        self.before_upload: Any = None
        self.after_squash: Any = None

    def _head(self) -> str:
        return hashlib.sha1(repr(self.commits).encode()).hexdigest()

    def repo_info(self, repo_id: str, *, repo_type: str) -> Any:
        if self.down:
            raise self.down
        if not self.commits:
            raise refused(404)
        return SimpleNamespace(sha=self._head())

    def create_repo(self, repo_id: str, *, repo_type: str, private: bool, exist_ok: bool) -> None:
        assert repo_type == "dataset" and exist_ok
        self.private = private
        self.commits = self.commits or [{}]

    def hf_hub_download(self, repo_id: str, filename: str, *, repo_type: str, revision: str, local_dir: str) -> str:
        assert revision == self._head()
        if filename not in self.commits[-1]:
            raise EntryNotFoundError("no such file")
        file = Path(local_dir) / filename
        file.write_bytes(self.commits[-1][filename])
        return str(file)

    def upload_file(
        self, *, path_or_fileobj: str, path_in_repo: str, repo_id: str, parent_commit: str | None, **_: str
    ) -> Any:
        if self.before_upload:
            self.before_upload, act = None, self.before_upload
            act()
        if self.down:
            raise self.down
        if parent_commit is not None and parent_commit != self._head():
            raise refused(412, "the head has moved")
        self.commits.append({path_in_repo: Path(path_or_fileobj).read_bytes()})
        self.uploads += 1
        return SimpleNamespace(oid=self._head())

    def super_squash_history(self, repo_id: str, *, repo_type: str) -> None:
        self.commits = self.commits[-1:]
        self.squashed += 1
        if self.after_squash:
            self.after_squash()


@pytest.fixture(params=["folder", "dataset"])
def place(request: pytest.FixtureRequest, tmp_path: Path):
    """Makes the place as another machine sees it."""
    hub = FakeHub()

    def make():
        return Folder(tmp_path / "volume") if request.param == "folder" else Dataset("me/runs", hub)

    return make


def test_the_last_runs_are_there_at_the_next_start(tmp_path: Path, place) -> None:
    first, second = tmp_path / "1" / "runs.db", tmp_path / "2" / "runs.db"
    first.parent.mkdir()
    with Backup(first, [place()], minutes=60) as backup:
        add(first, "a", "b")
    assert backup.problem is None
    with Backup(second, [place()], minutes=60) as backup:
        assert backup.problem is None and prompts(second) == ["a", "b"]


def test_copies_are_made_every_few_minutes(tmp_path: Path, place) -> None:
    path = tmp_path / "runs.db"
    with Backup(path, [place()], minutes=0.05 / 60), Store(path) as store:
        store.add(make_run())
        until = time.monotonic() + 20
        while place().version() is None:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_nothing_is_written_while_nothing_is_new(tmp_path: Path) -> None:
    path, hub = tmp_path / "runs.db", FakeHub()
    backup = Backup(path, [Dataset("me/runs", hub)])
    backup.exchange()
    assert hub.uploads == 0, "no history yet"
    add(path, "a")
    backup.exchange()
    backup.exchange()
    assert hub.uploads == 1 and hub.private is True
    add(path, "b")
    backup.exchange()
    assert hub.uploads == 2


def test_notes_and_late_scores_are_copied_too(tmp_path: Path) -> None:
    path, place = tmp_path / "runs.db", Folder(tmp_path / "copy")
    backup, run = Backup(path, [place]), make_run(batch_id="b")
    with Store(path) as store:
        first = store.add(run)
        assert first.wait()
        backup.exchange()
        run.scores = Scores(lossless=True, regret_rounds=3.0)
        store.add(run, anew=first)
        store.note("b", "why")
        assert store.flush()
        backup.exchange()
    copy = tmp_path / "copy" / FILE
    assert read_rows(copy, "SELECT regret_rounds, note FROM runs JOIN notes USING (batch_id)") == [(3.0, "why")]


def test_two_machines_end_up_with_all_runs(tmp_path: Path, place) -> None:
    paths = [tmp_path / "1.db", tmp_path / "2.db"]
    backups = [Backup(path, [place()]) for path in paths]
    for path, backup, asked in zip(paths, backups, ("a", "b")):
        add(path, asked)
        backup.exchange()
    backups[0].exchange()
    assert prompts(paths[0]) == prompts(paths[1]) == ["a", "b"]
    assert [backup.problem for backup in backups] == [None, None]


def test_who_comes_in_between_two_steps_is_not_overwritten(tmp_path: Path) -> None:
    hub, here, there = FakeHub(), tmp_path / "here.db", tmp_path / "there.db"
    mine, other = (Backup(path, [Dataset("me/runs", hub)]) for path in (here, there))
    add(here, "a")
    mine.exchange()
    add(here, "b")
    add(there, "c")
    hub.before_upload = other.exchange
    mine.exchange()
    assert mine.problem is None and prompts(here) == ["a", "b", "c"]
    copy = tmp_path / "copy.db"
    copy.write_bytes(hub.commits[-1][FILE])
    assert prompts(copy) == ["a", "b", "c"]


def test_a_hub_that_is_away_is_told_and_tried_again(tmp_path: Path) -> None:
    hub, path = FakeHub(), tmp_path / "runs.db"
    hub.down = ConnectionError("no route to the Hub\nand a long story")
    folder = Folder(tmp_path / "volume")
    backup = Backup(path, [Dataset("me/runs", hub), folder])
    backup.restore()
    add(path, "a")
    backup.exchange()
    assert (
        backup.problem == "The copy of the history in dataset me/runs is not up to date: no route to the Hub."
        and folder.version() is not None
    )
    hub.down = None
    backup.exchange()
    assert backup.problem is None and hub.uploads == 1


def test_a_copy_that_cannot_be_read_is_never_replaced(tmp_path: Path) -> None:
    path, volume = tmp_path / "runs.db", tmp_path / "volume"
    volume.mkdir()
    (volume / FILE).write_bytes(b"something of value to somebody" * 100)
    before = (volume / FILE).read_bytes()
    backup = Backup(path, [Folder(volume)])
    backup.restore()
    add(path, "a")
    backup.exchange()
    assert "damaged or not a SQLite database" in str(backup.problem)
    assert (volume / FILE).read_bytes() == before and prompts(path) == ["a"]


def test_a_copy_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    path, hub, volume = tmp_path / "runs.db", FakeHub(), tmp_path / "volume"
    add(path, "a")
    backup = Backup(path, [Folder(volume), Dataset("me/runs", hub)])
    backup.exchange()
    (volume / FILE).unlink()
    hub.commits.append({})
    backup.exchange()
    assert (volume / FILE).exists() and FILE in hub.commits[-1]


def test_the_commits_of_a_dataset_become_one_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "SQUASH_EVERY", 3)
    path, hub = tmp_path / "runs.db", FakeHub()
    backup = Backup(path, [Dataset("me/runs", hub)])
    for number in range(4):
        add(path, str(number))
        backup.exchange()
    assert (hub.squashed, len(hub.commits), backup.problem) == (1, 2, None)


def test_runs_that_come_in_right_after_a_squash_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "SQUASH_EVERY", 1)
    path, other, hub = tmp_path / "runs.db", tmp_path / "other.db", FakeHub()
    add(other, "theirs")
    copy = tmp_path / "copy.db"
    snapshot(other, copy)
    hub.after_squash = lambda: hub.commits.append({FILE: copy.read_bytes()})
    backup = Backup(path, [Dataset("me/runs", hub)])
    add(path, "mine")
    backup.exchange()
    hub.after_squash = None
    backup.exchange()
    assert prompts(path) == ["mine", "theirs"]


def test_leaving_does_not_wait_for_ever(tmp_path: Path) -> None:
    path, hub, go = tmp_path / "runs.db", FakeHub(), threading.Event()
    hub.before_upload = lambda: go.wait(60)
    add(path, "a")
    with Backup(path, [Dataset("me/runs", hub)], close_seconds=0.2):
        pass
    left_before, _ = not hub.uploads, go.set()
    assert left_before
