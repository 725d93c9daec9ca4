"""``custom``: a drafter of one's own, from a Python file beside the card."""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from drafters.base import Drafter
from multidraft.errors import PoolError
from multidraft.target import Target


def make_custom(
    name: str,
    file: Path,
    factory: str,
    options: Mapping[str, Any],
    target: Target,
    tokenizer: PreTrainedTokenizerBase,
) -> Drafter:
    """Call ``factory(name, target, tokenizer, **options)`` of ``file``, a class or a function that makes a drafter.

    The file's code is run: a card with such a drafter is to be trusted like a program.

    Raises:
        PoolError: the file cannot be run, has no such factory, the call fails, or what it makes is no drafter; the
            message says what is wrong, and in which line.
    """
    spec = spec_from_file_location(f"custom_drafter_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}", file)
    assert spec and spec.loader, "the card asks for a .py file"
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses and pickle look it up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise PoolError(f"drafter {name!r}: {file} cannot be run: {_told(error, file)}") from error
    if not callable(make := getattr(module, factory, None)):
        raise PoolError(f"drafter {name!r}: {file} has no class or function {factory!r}")
    try:
        drafter = make(name, target, tokenizer, **options)
    except (Exception, SystemExit) as error:
        call = ", ".join(["name", "target", "tokenizer", *(f"{key}={value!r}" for key, value in options.items())])
        raise PoolError(f"drafter {name!r}: {factory}({call}) of {file} failed: {_told(error, file)}") from error
    if not isinstance(drafter, Drafter):
        raise PoolError(
            f"drafter {name!r}: {factory} of {file} made {type(drafter).__name__!r}, which is no drafters.base.Drafter"
        )
    drafter.name, drafter.kind = name, "custom"
    return drafter


def _told(error: BaseException, file: Path) -> str:
    """An error in one line, with the last line of ``file`` that it came through."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{error.msg} in line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    where = f" in line {lines[-1]}" if lines else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"
