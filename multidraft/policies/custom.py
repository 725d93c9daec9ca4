"""Policies in files of one's own, which an environment variable names."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from drafters.errors import UserError
from drafters.files import run_file
from multidraft.policies.base import POLICIES

FILES = "MULTIDRAFT_POLICIES"
"""The variable: Python files, separated as in ``PATH``."""


def import_policies() -> None:
    """Import the files, each once, so that the policies that they register can be named everywhere.

    Raises:
        UserError: a file is missing, cannot be imported, or registers no policy.
    """
    for name in filter(None, os.environ.get(FILES, "").split(os.pathsep)):
        path = Path(name).expanduser().resolve()
        known_as = f"{path.stem} ({path})"  # files of the same name are told apart
        if known_as in sys.modules:
            continue
        if not (path.is_file() and path.suffix == ".py"):
            wrong = "is no Python file" if path.exists() else "does not exist"
            raise UserError(f"{FILES} names {name}, which {wrong}")
        before = dict(POLICIES)
        try:
            run_file(path, known_as)
        except (Exception, SystemExit) as error:
            POLICIES.clear()  # without those that it registered before it failed
            POLICIES.update(before)
            why = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            raise UserError(f"{FILES}: {name} cannot be imported: {why}") from error
        if before == POLICIES:
            del sys.modules[known_as]  # or it would be taken for imported
            raise UserError(f"{FILES}: {name} registers no policy; put @register above the class of each")
