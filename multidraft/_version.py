"""Which code this is."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

__version__ = "0.1.0"


@cache
def version() -> str:
    """Version of the code, with the commit where it runs from a git checkout, ``-dirty`` where that was changed."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return __version__
    command = ["git", "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    try:
        commit = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{commit.strip()}"
