"""Files that are replaced by whole ones."""

import os

import pytest

from drafters.files import replacing


def test_an_interruption_leaves_the_old_file_or_none(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("old")
    for path in (old, new):
        with pytest.raises(KeyboardInterrupt), replacing(path) as part:
            part.write_text("half")
            raise KeyboardInterrupt
    assert old.read_text() == "old" and os.listdir(tmp_path) == ["old"]
    with replacing(new) as part:
        part.write_text("new")
    assert new.read_text() == "new" and len(os.listdir(tmp_path)) == 2


def test_a_link_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/file")
    with replacing(tmp_path / "link") as part:
        part.write_text("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there" / "file").read_text() == "new"


def test_a_pipe_is_written_itself(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with replacing(tmp_path / "pipe") as part:
        assert part == tmp_path / "pipe"
