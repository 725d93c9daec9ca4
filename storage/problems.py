"""What can go wrong with the database file, said so that a user can mend it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ANOTHER_FILE = "name another file (--db, or MULTIDRAFT_DB for the app)"
"""What to do where a history's file cannot be used."""


class StorageError(Exception):
    """The database cannot be read or written; the message says what is wrong, where, and what to do."""


def explain(error: Exception, path: Path) -> str:
    """One sentence or two for a user: what is wrong, with which file, what to do.

    Told apart by SQLite's message.
    """
    if isinstance(error, StorageError):
        return str(error)
    text = str(error).lower()
    elsewhere = f"or {ANOTHER_FILE}"
    if "locked" in text or "busy" in text:
        return f"The database {path} is locked by another program: close that program or wait until it is done."
    if "readonly" in text:
        return f"The database {path} is read-only: make the file and its folder writable, {elsewhere}."
    if "full" in text:
        return f"The disk that holds {path} is full: free some space, {elsewhere}."
    if "not a database" in text or "malformed" in text or isinstance(error, UnicodeDecodeError):  # of SQLite's message
        return f"{path} is damaged or not a SQLite database; it was left as it is: move it away, {elsewhere}."
    if not path.parent.is_dir():
        return f"The folder {path.parent} of the database {path.name} does not exist: create it, {elsewhere}."
    if path.is_dir():
        return f"{path} is a folder, not a database file: move it away, {elsewhere}."
    if "unable to open" in text:
        return f"The database {path} cannot be opened: check the permissions of the file and its folder, {elsewhere}."
    return f"The database {path} cannot be used ({error}): check the file and its disk, {elsewhere}."


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Errors of SQLite and of the file system, raised as :class:`StorageError` about the database ``path``."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise StorageError(explain(error, path)) from error
