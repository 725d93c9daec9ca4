import os
import shutil
import time
from pathlib import Path

import gradio as gr
import pytest

from multidraft.ui.widgets import exports


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "multidraft-exports"
    monkeypatch.setattr(exports, "_folder", lambda: folder)
    return folder


def a_day_old(folder: Path) -> Path:
    """A file of yesterday."""
    file = exports.offered_file("old.txt", lambda path: path.write_text("old"))
    assert file
    then = time.time() - exports.KEPT_SECONDS - 60
    os.utime(file.parent, (then, then))
    return file


def test_files_go_after_a_day(folder: Path) -> None:
    old = a_day_old(folder)
    young = exports.offered_file("young.txt", lambda path: path.write_text("young"))
    exports.export_file("another.txt", lambda path: path.write_text("x"))
    assert young and young.read_text() == "young" and not old.exists()
    assert len(list(folder.iterdir())) == 2


def test_a_folder_that_another_export_removes_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = a_day_old(folder)
    stat = Path.stat

    def gone(path: Path, **settings: bool) -> os.stat_result:
        if path == old.parent:
            shutil.rmtree(path, ignore_errors=True)
        return stat(path, **settings)

    monkeypatch.setattr(Path, "stat", gone)
    assert Path(exports.export_file("new.txt", lambda path: path.write_text("new"))).read_text() == "new"


def test_a_file_that_cannot_be_written(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    assert exports.offered_file("a.txt", lambda path: path.write_text("a")) is None
    with pytest.raises(gr.Error, match="could not be written: "):
        exports.export_file("a.txt", lambda path: path.write_text("a"))
