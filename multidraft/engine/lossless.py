"""Is a greedy output the target's own? Checked token by token, without any drafter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from drafters.draft import Draft

if TYPE_CHECKING:
    from drafters.pool import Pool

CHUNK = 64
"""Positions scored in one forward: as fast as one token after the other is slow, and small in memory."""

ROUNDING = {"float32": 1e-4, "bfloat16": 0.25, "float16": 0.05}
"""Logits this close may change places between forwards of different shape, by dtype."""


@dataclass(frozen=True)
class Difference:
    """A token that is not the target's most probable one.

    Attributes:
        position: its index in the output, from 0.
        gap: how far its logit lies below the largest.
        rounding: whether that is within the rounding of the dtype: a near-tie, not a fault.
    """

    position: int
    gap: float
    rounding: bool


def teacher_forced(
    pool: Pool, prompt_ids: Sequence[int], output_ids: Sequence[int], chunk: int = CHUNK
) -> Iterator[tuple[int, list[int], torch.Tensor]]:
    """The target reads a finished text: first position, tokens and logits ``(tokens, V)`` of each chunk of the output.

    Hold the pool's lock meanwhile.
    """
    pool.target.prefill(prompt_ids)
    for start in range(0, len(output_ids), chunk):
        tokens = list(output_ids[start : start + chunk])
        logits = pool.target.score(Draft.chain(tokens[:-1]))
        pool.target.accept(range(len(tokens) - 1), tokens[-1])
        yield start, tokens, logits


def greedy_differences(pool: Pool, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> list[Difference]:
    """All output tokens that differ from the target's greedy choice after the tokens before them.

    The target reads the finished text in a few forwards, so this costs a small part of decoding it. No difference
    means that plain greedy decoding would have written the same. In low precision forwards of different shape round
    differently, which can decide between all but equally probable tokens.
    """
    differences = []
    with pool.lock:
        for start, tokens, logits in teacher_forced(pool, prompt_ids, output_ids):
            best = logits.float().max(dim=-1)
            for offset, token in enumerate(tokens):
                if int(best.indices[offset]) != token:
                    gap = float(best.values[offset] - logits[offset, token].float())
                    differences.append(Difference(start + offset, gap, gap <= ROUNDING[pool.card.dtype]))
    return differences
