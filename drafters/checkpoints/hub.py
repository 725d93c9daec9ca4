"""Models from the Hugging Face Hub: fetched into its local cache, with progress; what goes wrong is explained."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from drafters.errors import PoolError, first_line
from drafters.source import Source

TOKENIZER_FILES = ("*.json", "*.jinja", "*.txt", "*.model")
MODEL_FILES = (*TOKENIZER_FILES, "*.safetensors")
HEAD_FILES = ("*.json", "*.safetensors", "*.bin", "*.pt")

_OTHER_COPIES = ["*/*", "consolidated*"]
"""The same weights once more, in other formats or cut otherwise."""

_BROKEN_OFF = {
    "ConnectionError", "TimeoutError", "NetworkError", "TimeoutException", "RemoteProtocolError", "ProxyError",
}  # fmt: skip
"""Errors of a connection, by name: which HTTP library the Hub's takes depends on its version."""

_folders: dict[tuple[str | None, str | None, Sequence[str]], Path] = {}
"""What has been fetched in this process: a pool asks for the same folder several times while it loads."""


def folder_of(source: Source, card: Path, files: Sequence[str] = HEAD_FILES) -> Path:
    """The local folder of a model in the file ``card``; the ``files`` of a Hub repository are fetched if they have not
    been."""
    if source.path is not None:
        folder = (card.parent / source.path).resolve()
        if not folder.is_dir():
            raise PoolError(f"the pool card {card} names the folder {folder}, which does not exist")
        return folder
    for (id, revision, held), folder in _folders.items():
        if (id, revision) == (source.id, source.revision) and set(files) <= set(held) and folder.is_dir():
            return folder
    return fetch(source, files)


def fetch(source: Source, files: Sequence[str], report: Callable[[int, int], None] = lambda done, total: None) -> Path:
    """Bring a repository's ``files`` (patterns) into the local cache, or up to date there; without a network what the
    cache holds will do.

    Args:
        report: called with the bytes that have arrived and the total; both 0 while the Hub does not say.

    Raises:
        HubDownError: the Hub does not answer, or not as it should; it may later.
        PoolError: it cannot be fetched, or holds no weights that may be loaded; the message says what to do.
    """
    try:
        folder = Path(
            snapshot_download(
                str(source.id),
                revision=source.revision,
                allow_patterns=list(files),
                ignore_patterns=_OTHER_COPIES,
                local_files_only=not constants.HF_HUB_OFFLINE and _nowhere(),
                tqdm_class=_bars(report),  # type: ignore[arg-type]
            )
        )
    except PoolError:  # the report has had enough
        raise
    except Exception as error:
        raise problem(error, source) from error
    if files == MODEL_FILES and not any(folder.glob("*.safetensors")):
        raise PoolError(
            f"the Hub repository {source.id} holds no .safetensors weights, and other formats are not loaded "
            "because they can run code; name a repository or revision that has them"
        )
    _folders[(source.id, source.revision, files)] = folder
    return folder


def _nowhere() -> bool:
    """Whether the Hub's name is not to be resolved: the library would try for half a minute nevertheless."""
    host = urlsplit(constants.ENDPOINT).hostname
    try:
        return bool(host and not getproxies() and not socket.getaddrinfo(host, None))  # a proxy may know it
    except OSError:
        return True


class HubDownError(PoolError):
    """The Hub cannot be reached or is out of order: what was asked of it may succeed later."""


def problem(error: Exception, source: Source) -> PoolError:
    """What is wrong with a repository, and what to do, by the error that the Hub's library raised."""
    place, page = f"the Hub repository {source.id}", f"{constants.ENDPOINT}/{source.id}"
    plain = {
        GatedRepoError: f"{place} is gated: ask for access on {page}, then log in with 'hf auth login' or set HF_TOKEN "
        "to a token of that account",
        RepositoryNotFoundError: f"{place} does not exist or is private: check the name, or set HF_TOKEN if private",
        RevisionNotFoundError: f"{place} has no revision {source.revision!r}: look it up on {page}, or leave it out of "
        "the card",
        DisabledRepoError: f"{place} has been disabled on the Hub: choose another",
        HFValidationError: f"{source.id!r} is not the name of a Hub repository, such as Qwen/Qwen2.5-0.5B-Instruct",
    }
    for kind, message in plain.items():  # the first is also of the second kind
        if isinstance(error, kind):
            return PoolError(message)
    causes: list[BaseException] = [error]
    while cause := causes[-1].__cause__:
        causes.append(cause)
    if any(isinstance(cause, OfflineModeIsEnabled) for cause in causes):
        return PoolError(
            f"{place} is not in the local cache, and HF_HUB_OFFLINE forbids fetching it: unset it, or fetch it first"
        )
    answers = (getattr(cause, "response", None) for cause in causes if isinstance(cause, HfHubHTTPError))
    if status := next((answer.status_code for answer in answers if answer is not None), None):
        raised = HubDownError if status in (408, 429) or status >= 500 else PoolError
        return raised(f"{place} cannot be fetched: {page} answered {status}; try again later")
    if isinstance(error, LocalEntryNotFoundError):
        return HubDownError(
            f"{place} is not in the local cache, and {constants.ENDPOINT} cannot be reached: check the network, or "
            "name a local folder in its place"
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        space = f"does not fit on the disk of {constants.HF_HUB_CACHE}: make room, or set HF_HOME to another"
        return PoolError(f"{place} {space}")
    raised = HubDownError if any(_broken_off(cause) for cause in causes) else PoolError
    return raised(f"{place} cannot be fetched: {first_line(error)}")


def _broken_off(error: BaseException) -> bool:
    """Whether a connection failed, which may hold next time."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(_BROKEN_OFF & names) or "CAS Client Error" in str(error)  # of hf_xet, as a RuntimeError


def _bars(report: Callable[[int, int], None]) -> type:
    """A class for the library's progress bars, which sums up the bytes of one fetching and shows nothing itself."""
    bars: list[Any] = []

    class Bar:
        def __init__(self, *_: Any, total: int | None = None, initial: int = 0, unit: str = "it", **__: Any):
            self.n, self.total, self.format_dict = initial, total, dict[str, Any]()
            if unit == "B":
                bars.append(self)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None: ...

        def update(self, n: float | None = 1) -> None:
            self.n += int(n or 0)
            self.refresh()

        def refresh(self) -> None:
            """The library keeps two bars of bytes, received and written, and guesses the former's total."""
            if self in bars:
                total = min((bar.total for bar in bars if bar.total), default=0)
                report(min(max(bar.n for bar in bars), total), total)

        def close(self, *_: Any, **__: Any) -> None: ...

        set_description = set_description_str = set_postfix_str = close

    return Bar
