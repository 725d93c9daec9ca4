"""Multi-drafter speculative decoding: several drafters, one target, a policy that learns whom to trust.

import multidraft as md

pool = md.load_pool("pocket")
out = md.generate(pool, "prompt", policy="normal-hedge")
print(out.text, out.tokens_per_second)
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from multidraft.draft import Draft
from multidraft.engine import Decoding, generate, stream
from multidraft.errors import ContextWindowError, PolicyError, PoolError, PromptError, SuiteError, UserError
from multidraft.policies import Feedback, Policy, make_policy, policy_names
from multidraft.records import Generation, Round
from multidraft.regret import acceptance_table
from multidraft.replay import Replayed, replay
from multidraft.sampling import SamplingParams

if TYPE_CHECKING:
    from drafters.pool import Pool

__version__ = "0.1.0"

__all__ = [
    "ContextWindowError",
    "Decoding",
    "Draft",
    "Feedback",
    "Generation",
    "Policy",
    "PolicyError",
    "PoolError",
    "PromptError",
    "Replayed",
    "Round",
    "SamplingParams",
    "SuiteError",
    "UserError",
    "acceptance_table",
    "generate",
    "load_pool",
    "make_policy",
    "policy_names",
    "replay",
    "stream",
    "version",
]


def load_pool(name_or_path: str | Path, *, device: str | None = None) -> Pool:
    """Load a pool from a bundled card's name or a path to a card; see :func:`drafters.pool.load_pool`."""
    # Imported here: the engine itself must not depend on concrete drafters.
    from drafters.pool import load_pool as load

    return load(name_or_path, device=device)


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
