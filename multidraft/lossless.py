"""Is a greedy output the target's own? Checked token by token, without any drafter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multidraft.draft import Draft

if TYPE_CHECKING:
    from drafters.pool import Pool

CHUNK = 64
"""Positions scored in one forward: as fast as one token after the other is slow, and small in memory."""

ROUNDING = {"float32": 1e-4, "bfloat16": 0.25, "float16": 0.05}
"""Logits this close may change places between forwards of different shape, by number type."""


@dataclass(frozen=True)
class Difference:
    """A token that is not the target's most probable one.

    Attributes:
        position: its index in the output, from 0.
        gap: how far its logit lies below the largest.
        rounding: whether that is within the rounding of the number type: a near-tie, not a fault.
    """

    position: int
    gap: float
    rounding: bool


def greedy_differences(pool: Pool, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> list[Difference]:
    """All output tokens that differ from the target's greedy choice after the tokens before them.

    The target reads the finished text in a few forwards, so this costs a small part of decoding it. No difference
    means that plain greedy decoding would have written the same. In low precision forwards of different shape round
    differently, which can decide between all but equally probable tokens (SPEC 2).
    """
    differences = []
    with pool.lock:
        pool.target.prefill(prompt_ids)
        for start in range(0, len(output_ids), CHUNK):
            chunk = list(output_ids[start : start + CHUNK])
            logits = pool.target.score(Draft.chain(chunk[:-1])).float()
            pool.target.accept(range(len(chunk) - 1), chunk[-1])
            best = logits.max(dim=-1)
            for offset, token in enumerate(chunk):
                if int(best.indices[offset]) != token:
                    gap = float(best.values[offset] - logits[offset, token])
                    differences.append(Difference(start + offset, gap, gap <= ROUNDING[pool.dtype]))
    return differences
