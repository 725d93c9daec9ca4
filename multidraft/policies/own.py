"""Policies in files of one's own, which an environment variable names."""

from __future__ import annotations

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from drafters.errors import UserError

FILES = "MULTIDRAFT_POLICIES"
"""The variable: Python files, separated as in ``PATH``."""


def import_own() -> None:
    """Import the files, each once, so that the policies that they register can be named everywhere.

    Raises:
        UserError: a file is missing, or cannot be imported.
    """
    for name in filter(None, os.environ.get(FILES, "").split(os.pathsep)):
        path = Path(name).expanduser().resolve()
        known_as = f"{path.stem} ({path})"  # files of the same name are told apart
        if known_as in sys.modules:
            continue
        spec = spec_from_file_location(known_as, path) if path.is_file() and path.suffix == ".py" else None
        if spec is None or spec.loader is None:
            raise UserError(f"{FILES} names {name}, which is no Python file")
        sys.modules[known_as] = module = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[known_as]
            raise UserError(f"{FILES}: {name} cannot be imported: {type(error).__name__}: {error}") from error
