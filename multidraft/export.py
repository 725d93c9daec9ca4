"""A whole run as plain values: what was asked, on what it ran, what came out, every round with its seconds."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Any

from multidraft import version
from multidraft.hardware import describe
from multidraft.records import Generation
from multidraft.sampling import SamplingParams

if TYPE_CHECKING:
    from drafters.pool import Pool


def run_record(pool: Pool, generation: Generation, params: SamplingParams, seed: int, **known: Any) -> dict[str, Any]:
    """Everything of a run that others need to read or repeat it, ready for JSON.

    Args:
        known: what is known of it beside, e.g. ``baseline_tokens_per_second``; added as it is.

    Returns:
        The attributes of :class:`~multidraft.records.Generation`, its figures (:func:`figures`), ``parameters``,
        ``seed``, ``pool``, ``card_hash``, ``dtype``, ``hardware`` and ``versions``.
    """
    return {
        **asdict(generation),
        **figures(generation),
        **known,
        "parameters": asdict(params),
        "seed": seed,
        "pool": pool.name,
        "card_hash": pool.card_hash,
        "dtype": pool.dtype,
        "hardware": describe(pool.device),
        "versions": {
            "multidraft": version(),
            "torch": version_of("torch"),
            "transformers": version_of("transformers"),
            "python": platform.python_version(),
        },
    }


def figures(generation: Generation) -> dict[str, Any]:
    """What a generation's rounds add up to; the seconds are those of decoding, by phase too."""
    rounds = generation.rounds
    return {
        "tokens_per_second": generation.tokens_per_second,
        "mean_accepted_tokens": generation.mean_accepted_tokens,
        "acceptance_rate": generation.acceptance_rate,
        "drafter_shares": generation.drafter_shares,
        "seconds": generation.seconds,
        "seconds_by_phase": {
            phase: sum(getattr(r, f"{phase}_seconds") for r in rounds)
            for phase in ("draft", "verify", "policy", "evaluate")
        },
    }
