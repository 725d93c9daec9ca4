"""Settings of the app by environment variables: read and checked in one place, before anything is loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from drafters.errors import UserError

VOLUME = Path("/data")
"""Where a Space mounts storage that outlasts it."""

_LONGEST_MINUTES = 24 * 60


@dataclass(frozen=True)
class Settings:
    """What the variables say, or the defaults.

    Attributes:
        pool: ``MULTIDRAFT_POOL``: a bundled pool or the path of a card.
        pools: ``MULTIDRAFT_POOLS``: folder of further cards that the page offers.
        may_switch: ``MULTIDRAFT_SWITCH``: whether visitors may load another pool; by default only where the page is
            served to this machine alone, since all visitors share one pool. Never on ZeroGPU, where a pool's
            weights are handed over at the start.
        db: ``MULTIDRAFT_DB``: file of the history; in the home folder on a Space, whose repository may be read-only.
        host: ``GRADIO_SERVER_NAME``; ``None`` is this machine only.
        port: ``GRADIO_SERVER_PORT``; ``None`` is the first free one.
        backup_folder: ``MULTIDRAFT_BACKUP_FOLDER``: folder for copies of the history; on a Space with a volume at
            ``/data`` one in there.
        backup_dataset: ``MULTIDRAFT_BACKUP``: dataset on the Hub for copies of the history.
        backup_minutes: ``MULTIDRAFT_BACKUP_MINUTES``: time between copies.
    """

    pool: str = "pocket"
    pools: Path | None = None
    may_switch: bool = True
    db: Path = Path("runs.db")
    host: str | None = None
    port: int | None = None
    backup_folder: Path | None = None
    backup_dataset: str | None = None
    backup_minutes: float = 5.0


def read_settings(variables: Mapping[str, str] | None = None) -> Settings:
    """The settings that environment ``variables`` (by default those of this process) ask for; empty ones don't count.

    Raises:
        UserError: a value that cannot be used; the message names variable and value.
    """
    set_ = {name: value.strip() for name, value in (variables or os.environ).items() if value.strip()}
    on_space, host = "SPACE_ID" in set_, set_.get("GRADIO_SERVER_NAME")
    switch = _on_or_off(set_.get("MULTIDRAFT_SWITCH"))
    alone = host in (None, "127.0.0.1", "localhost", "::1") and not on_space
    folder = set_.get("MULTIDRAFT_BACKUP_FOLDER")
    volume = VOLUME / "multidraft" if on_space and os.access(VOLUME, os.W_OK) else None
    return Settings(
        pool=set_.get("MULTIDRAFT_POOL", Settings.pool),
        pools=_cards(set_.get("MULTIDRAFT_POOLS")),
        may_switch=(alone if switch is None else switch) and not on_zerogpu(set_),
        db=Path(set_.get("MULTIDRAFT_DB") or (Path.home() / "multidraft-runs.db" if on_space else Settings.db)),
        host=host,
        port=_port(set_.get("GRADIO_SERVER_PORT")),
        backup_folder=Path(folder) if folder else volume,
        backup_dataset=_dataset(set_.get("MULTIDRAFT_BACKUP")),
        backup_minutes=_minutes(set_.get("MULTIDRAFT_BACKUP_MINUTES")),
    )


def on_zerogpu(variables: Mapping[str, str] | None = None) -> bool:
    """Whether this is a Space on ZeroGPU."""
    variables = os.environ if variables is None else variables
    return variables.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def _on_or_off(value: str | None) -> bool | None:
    if value is not None and value.lower() not in ("on", "off"):
        raise UserError(f"MULTIDRAFT_SWITCH must be on or off, got {value!r}")
    return None if value is None else value.lower() == "on"


def _cards(value: str | None) -> Path | None:
    if value is not None and not Path(value).is_dir():
        raise UserError(f"MULTIDRAFT_POOLS must be a folder with cards, and {value!r} is none")
    return Path(value) if value else None


def _port(value: str | None) -> int | None:
    if value is None:
        return None
    if not value.isdecimal() or not 0 < int(value) < 2**16:
        raise UserError(f"GRADIO_SERVER_PORT must be a number from 1 to 65535, got {value!r}")
    return int(value)


def _dataset(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+", value):
        raise UserError(f"MULTIDRAFT_BACKUP must be a dataset on the Hub, as USER/NAME, got {value!r}")
    return value


def _minutes(value: str | None) -> float:
    if value is None:
        return Settings.backup_minutes
    try:
        minutes = float(value)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= _LONGEST_MINUTES:
        raise UserError(
            f"MULTIDRAFT_BACKUP_MINUTES must be a number of minutes up to {_LONGEST_MINUTES}, got {value!r}"
        )
    return minutes
