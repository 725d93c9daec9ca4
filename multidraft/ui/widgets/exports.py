"""Files made for a download, kept for a day."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import gradio as gr
from gradio.utils import get_upload_folder

log = logging.getLogger(__name__)

KEPT_SECONDS = 24 * 3600

MOST_BYTES = 2 * 2**30
"""All files together have at most so many; beyond them the oldest go."""

Write = Callable[[Path], object]
"""Fills a file."""


def export_file(name: str, write: Write) -> str:
    """Path of a new file called ``name`` that ``write`` has filled; those older than ``KEPT_SECONDS`` go.

    Raises:
        gr.Error: it could not be written; the page shows why.
    """
    try:
        return str(_new_file(name, write))
    except OSError as error:
        log.warning("%s could not be written to %s: %s", name, _folder(), error)
        said = f"The export could not be written: {error.strerror or type(error).__name__}"
        raise gr.Error(said, print_exception=False) from None


def offered_file(name: str, write: Write) -> Path | None:
    """Likewise, of what is offered beside a result: ``None`` if it could not be written, for the result counts more."""
    try:
        return _new_file(name, write)
    except OSError as error:
        log.warning("%s could not be written to %s: %s", name, _folder(), error)
        return None


def download(file: Path | None) -> gr.DownloadButton:
    """The update of a button for a file; out of use without one."""
    return gr.DownloadButton(value=str(file) if file else None, interactive=file is not None)


def _folder() -> Path:
    # In Gradio's own folder, which it serves from without making a copy that would stay.
    return Path(get_upload_folder(), "multidraft-exports")


def _new_file(name: str, write: Write) -> Path:
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    _make_room(folder)
    file = Path(tempfile.mkdtemp(dir=folder), name)
    write(file)
    return file


def _make_room(folder: Path) -> None:
    """Remove files that have been kept long enough, or that there is no room for."""
    kept = 0
    found = sorted(((_changed(old), old) for old in folder.iterdir()), reverse=True)
    for changed, old in found:
        with suppress(FileNotFoundError):  # another export has just removed it
            kept += sum(file.stat().st_size for file in old.iterdir())
        if changed < time.time() - KEPT_SECONDS or kept > MOST_BYTES:
            shutil.rmtree(old, ignore_errors=True)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
