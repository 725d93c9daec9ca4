"""The folder that a long piece of work can be resumed from: its settings, and files that are whole or not there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from drafters.errors import TrainingError
from drafters.files import replacing

SETTINGS = "settings.json"


def claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make ``folder`` for work done with ``settings``, or go on with what it holds.

    Args:
        settings: all that what is written there depends on; values that JSON knows.

    Raises:
        TrainingError: it holds work done with other settings (the message says which differ), or cannot be written.
    """
    file = folder / SETTINGS
    wanted = json.loads(json.dumps(settings))
    if not file.is_file():
        write_text(file, json.dumps(wanted, indent=2) + "\n")
        return
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(f"cannot read {file}: {error}. Remove {folder} to begin anew") from None
    if differing := [name for name in wanted if found.get(name) != wanted[name]]:
        changes = "; ".join(f"{name} was {_json(found.get(name))}, is now {_json(wanted[name])}" for name in differing)
        raise TrainingError(
            f"{folder} holds work done with other settings ({changes}). Give the same settings to resume it, or "
            "another --work to begin anew"
        )


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file beside ``path``, then put it in its place: an interruption leaves the old one, or none.

    Raises:
        TrainingError: the disk is full, or the folder may not be written to.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            write(part)


def write_text(path: Path, text: str) -> None:
    """Likewise a text."""
    write_file(path, lambda part: part.write_text(text, encoding="utf-8"))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Where ``path`` is written: says what to do if it cannot be.

    Raises:
        TrainingError: the disk is full, or the folder may not be written to.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:  # torch says RuntimeError where the disk is full
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TrainingError(
            f"cannot write {path}: {reason[:200]}. What was written before is kept: make room, or see to the "
            "permissions, and give the same command again"
        ) from error
