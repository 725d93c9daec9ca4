"""Settings of the app by environment variables: read and checked in one place, before anything is loaded."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from drafters.caches import SETTING as CACHE_MEMORY
from drafters.errors import UserError
from drafters.hardware import GIB
from multidraft.service.limits import PUBLIC, Limits

VOLUME = Path("/data")
"""Where a Space mounts storage that outlasts it."""

MINUTES = 24 * 60
"""Longest time between copies."""

FRAMES = ("https://huggingface.co", "https://*.hf.space")
"""What shows a Space inside of its own pages."""

THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")
"""Names by which a machine reaches itself."""

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """What the variables say, or the defaults. README and docs/operations.md explain them.

    Attributes:
        pool: ``MULTIDRAFT_POOL``.
        pools: ``MULTIDRAFT_POOLS``.
        may_switch: ``MULTIDRAFT_SWITCH``; never on ZeroGPU, where a pool's weights are handed over at the start.
        may_import: ``MULTIDRAFT_IMPORT``.
        db: ``MULTIDRAFT_DB``; in the home folder on a Space, whose repository may be read-only.
        host: ``GRADIO_SERVER_NAME``; ``None`` is this machine only.
        port: ``GRADIO_SERVER_PORT``; ``None`` is the first free one.
        backup_folder: ``MULTIDRAFT_BACKUP_FOLDER``; by default a folder in :data:`VOLUME` where a Space has it.
        backup_dataset: ``MULTIDRAFT_BACKUP``.
        backup_minutes: ``MULTIDRAFT_BACKUP_MINUTES``.
        api_key: ``MULTIDRAFT_API_KEY``.
        cache_bytes: ``MULTIDRAFT_CACHE_MEMORY``, in GiB there.
        learnt: ``MULTIDRAFT_LEARNT``; ``None`` where drafters learn nothing, as on ZeroGPU.
        hosts: ``MULTIDRAFT_HOSTS``; ``*`` are all.
        frames: ``MULTIDRAFT_FRAMES``; likewise.
        operator_key: ``MULTIDRAFT_OPERATOR_KEY``.
        limits: ``MULTIDRAFT_QUEUE``, ``…_SHARE`` and so on; by default :data:`~multidraft.service.limits.PUBLIC`, and
            fewer where the page is served to this machine alone.
    """

    pool: str = "pocket"
    pools: Path | None = None
    may_switch: bool = True
    may_import: bool = True
    db: Path = Path("runs.db")
    host: str | None = None
    port: int | None = None
    backup_folder: Path | None = None
    backup_dataset: str | None = None
    backup_minutes: float = 5.0
    api_key: str | None = field(default=None, repr=False)
    cache_bytes: int | None = None
    learnt: Path | None = Path("learnt")
    hosts: tuple[str, ...] = THIS_MACHINE
    frames: tuple[str, ...] = ()
    operator_key: str | None = field(default=None, repr=False)
    limits: Limits = Limits()  # noqa: RUF009


def read_settings(variables: Mapping[str, str] = os.environ) -> Settings:
    """The settings that environment ``variables`` (by default those of this process) ask for; empty ones don't count.

    Raises:
        UserError: a value that cannot be used; the message names variable and value.
    """
    given = {name: value.strip() for name, value in variables.items() if value.strip()}

    def read(name: str, kind: type[T], valid: Callable[[T], bool], must_be: str) -> T | None:
        if (text := given.get(name)) is None:
            return None
        try:
            if valid(value := kind(text)):  # type: ignore[call-arg]
                return value
        except ValueError:
            pass
        raise UserError(f"{name} must be {must_be}, got {text!r}")

    on_space = "SPACE_ID" in given
    host = read("GRADIO_SERVER_NAME", str, _is_served, "an address of this machine, or 0.0.0.0 for all of them")
    alone = (host is None or is_loopback(host)) and not on_space

    def may(name: str) -> bool:
        said = read(name, str, lambda text: text.lower() in ("on", "off"), "on or off")
        return alone if said is None else said.lower() == "on"

    volume = VOLUME / "multidraft" if on_space and os.access(VOLUME, os.W_OK) else None
    dataset = re.compile(r"[\w.-]+/[\w.-]+").fullmatch
    minutes = f"a number of minutes above 0, {MINUTES:,} at most"
    caches = read(CACHE_MEMORY, float, lambda value: 0 < value < math.inf, "a number of GiB above 0")
    db = Path(given.get("MULTIDRAFT_DB") or (Path.home() / "multidraft-runs.db" if on_space else Settings.db))
    learnt = given.get("MULTIDRAFT_LEARNT", str(db.with_name("learnt")))
    return Settings(
        pool=given.get("MULTIDRAFT_POOL", Settings.pool),
        pools=read("MULTIDRAFT_POOLS", Path, Path.is_dir, "a folder with cards"),
        may_switch=may("MULTIDRAFT_SWITCH") and not on_zerogpu(given),
        may_import=may("MULTIDRAFT_IMPORT"),
        db=db,
        host=host,
        port=read("GRADIO_SERVER_PORT", int, lambda port: 0 < port < 2**16, "a number from 1 to 65535"),
        backup_folder=read("MULTIDRAFT_BACKUP_FOLDER", Path, lambda _: True, "a folder") or volume,
        backup_dataset=read(
            "MULTIDRAFT_BACKUP", str, lambda id: bool(dataset(id)), "a dataset on the Hub, as USER/NAME"
        ),
        backup_minutes=read("MULTIDRAFT_BACKUP_MINUTES", float, lambda value: 0 < value <= MINUTES, minutes)
        or Settings.backup_minutes,
        api_key=given.get("MULTIDRAFT_API_KEY"),
        cache_bytes=None if caches is None else int(caches * GIB),
        learnt=None if learnt.lower() == "off" or on_zerogpu(given) else Path(learnt),
        hosts=tuple(
            _listed(read("MULTIDRAFT_HOSTS", str, _names_hosts, "names without http://, port or path, with commas"))
        )
        or (THIS_MACHINE if alone else ("*",)),
        frames=tuple(_listed(given.get("MULTIDRAFT_FRAMES", ""))) or (FRAMES if on_space else ()),
        operator_key=given.get("MULTIDRAFT_OPERATOR_KEY"),
        limits=_limits(read, Limits() if alone else PUBLIC),
    )


def _limits(read: Callable[..., Any], usual: Limits) -> Limits:
    """The limits that variables set, and for the others those that are usual."""

    def number(name: str, kind: type[float], most: float = math.inf) -> float | None:
        below = "" if most == math.inf else f" up to {most:g}"
        what = "a whole number above 0" if kind is int else f"a number above 0{below}"
        return read(f"MULTIDRAFT_{name}", kind, lambda value: 0 < value <= most and value < math.inf, what)

    stored = number("STORED_GB", float)
    found = {
        "queue": number("QUEUE", int),
        "share": number("SHARE", float, 1.0),
        "prompt_tokens": number("PROMPT_TOKENS", int),
        "new_tokens": number("NEW_TOKENS", int),
        "batch_runs": number("BATCH_RUNS", int),
        "run_seconds": number("RUN_SECONDS", float),
        "batch_seconds": number("BATCH_SECONDS", float),
        "stored_bytes": None if stored is None else int(stored * GIB),
    }
    return replace(usual, **{name: value for name, value in found.items() if value is not None})  # type: ignore[arg-type]


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _names_hosts(text: str) -> bool:
    return not any("/" in name or name.count(":") == 1 for name in _listed(text))  # an IPv6 address has more colons


def _is_served(host: str) -> bool:
    """Whether a server can listen there."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host, by name or address, is the machine itself, to whoever asks."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def on_zerogpu(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether this is a Space on ZeroGPU."""
    return variables.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
