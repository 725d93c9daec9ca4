"""What looking up costs: microseconds of a draft by the drafters that copy from a long history or a datastore."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

import torch

from multidraft.sampling import SamplingParams

if TYPE_CHECKING:
    from drafters.base import Drafter


def microseconds_per_draft(
    drafter: Drafter, history: Sequence[int], draft_length: int = 8, drafts: int = 500
) -> tuple[float, float]:
    """Median and 99th percentile of a draft, one after each of the last ``drafts`` tokens of ``history``.

    What is timed is what a round waits for: catching up on the new token, and drafting.
    """
    params, generator = SamplingParams(draft_length=draft_length), torch.Generator()
    context = list(history[:-drafts])
    drafter.prepare(context)
    seconds = []
    for token in history[-drafts:]:
        context.append(token)
        begun = time.perf_counter()
        drafter.propose(context, draft_length, params, generator)
        seconds.append(time.perf_counter() - begun)
    return 1e6 * median(seconds), 1e6 * sorted(seconds)[len(seconds) * 99 // 100]
