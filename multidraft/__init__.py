"""Multi-drafter speculative decoding: several drafters, one target, a policy that learns whom to trust.

import multidraft as md

pool = md.load_pool("pocket")
out = md.generate(pool, "prompt", policy="rate-hedge")
print(out.text, out.tokens_per_second)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafters.draft import Draft
from drafters.errors import ContextWindowError, PolicyError, PoolError, PromptError, SuiteError, UserError
from drafters.sampling import SamplingParams
from multidraft._version import __version__, version
from multidraft.engine.batch import generate_batch
from multidraft.engine.decoding import Decoding, generate, stream
from multidraft.engine.output import Output
from multidraft.engine.warming import warm_up
from multidraft.policies import Feedback, Policy, make_policy, policy_names
from multidraft.replay.regret import acceptance_table
from multidraft.replay.walk import Replayed, replay
from storage.records import Generation, Round

if TYPE_CHECKING:
    from drafters.pool import Pool

__all__ = [
    "ContextWindowError",
    "Decoding",
    "Draft",
    "Feedback",
    "Generation",
    "Output",
    "Policy",
    "PolicyError",
    "PoolError",
    "PromptError",
    "Replayed",
    "Round",
    "SamplingParams",
    "SuiteError",
    "UserError",
    "__version__",
    "acceptance_table",
    "generate",
    "generate_batch",
    "load_pool",
    "make_policy",
    "policy_names",
    "replay",
    "stream",
    "version",
    "warm_up",
]


def load_pool(name_or_path: str | Path, *, device: str | None = None, **settings: Any) -> Pool:
    """Load a pool from a bundled card's name or a path to a card; further ``settings`` are, like these, those of
    :func:`drafters.pool.load_pool`."""
    from drafters.pool import load_pool  # takes seconds, which a reader of histories need not wait for

    return load_pool(name_or_path, device=device, **settings)
