"""Files made for a download, kept for a short time."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import gradio as gr
from gradio.utils import get_upload_folder

from multidraft.errors import UserError
from storage.problems import StorageError

KEPT_SECONDS = 600


def export_file(name: str, write: Callable[[Path], object]) -> str:
    """Path of a new file called ``name`` that ``write`` has filled; those older than ``KEPT_SECONDS`` go.

    Raises:
        gr.Error: it could not be written; the page shows why.
    """
    # In Gradio's own folder, which it serves from without making a copy that would stay.
    folder = Path(get_upload_folder(), "multidraft-exports")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if old.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        file = Path(tempfile.mkdtemp(dir=folder), name)
        write(file)
    except (StorageError, UserError) as error:
        raise gr.Error(str(error), print_exception=False) from None
    except OSError as error:
        raise gr.Error(f"The export could not be written to {folder}: {error}", print_exception=False) from None
    return str(file)
