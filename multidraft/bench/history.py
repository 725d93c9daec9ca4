"""What is known of a run beside its generation, in the form in which the history keeps it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from multidraft import version
from multidraft.hardware import describe
from multidraft.records import Turn
from multidraft.regret import ExpectedRegret, Regret
from multidraft.sampling import SamplingParams
from storage.rows import RunContext, Source

if TYPE_CHECKING:
    from drafters.pool import Pool


def run_context(
    pool: Pool,
    params: SamplingParams,
    *,
    source: Source,
    seed: int,
    task: str | None = None,
    suite: str | None = None,
    batch_id: str | None = None,
    baseline_tokens_per_second: float | None = None,
    regret: Regret | None = None,
    expected_regret: ExpectedRegret | None = None,
    table: np.ndarray | None = None,
    lossless: bool | None = None,
    turns: Sequence[Turn] = (),
    hardware: str | None = None,
) -> RunContext:
    """The record's context, with all that pool, machine and code say of themselves.

    Args:
        table: the acceptance table of a greedy run, from which any policy can be replayed.
        turns: earlier turns of the conversation, kept with the parameters.
        hardware: what it ran on, where that is not what the pool's device is called in this process.
    """
    names = [drafter.name for drafter in pool.drafters]
    return RunContext(
        source=source,
        pool=pool.name,
        card_hash=pool.card_hash,
        parameters={**asdict(params), **({"turns": list(turns)} if turns else {})},
        seed=seed,
        hardware=hardware or describe(pool.device),
        dtype=pool.dtype,
        version=version(),
        task=task,
        suite=suite,
        batch_id=batch_id,
        baseline_tokens_per_second=baseline_tokens_per_second,
        regret_rounds=regret.rounds if regret else None,
        expected_regret=expected_regret.loss if expected_regret else None,
        best_arm=names[regret.best_arm] if regret else None,
        best_arm_ratio=regret.best_arm_ratio if regret else None,
        drafter_rounds=dict(zip(names, regret.needed, strict=True)) if regret else None,
        acceptance=None if table is None else zlib.compress(table.astype(np.uint8).tobytes()),
        lossless=lossless,
    )


def read_table(packed: bytes, drafters: int) -> np.ndarray:
    """The acceptance table ``(drafters, output positions)`` as :func:`run_context` packed it."""
    return np.frombuffer(zlib.decompress(packed), dtype=np.uint8).astype(np.int64).reshape(drafters, -1)
