"""The drafter interface: whatever can propose tokens for the target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from multidraft.draft import Draft
from multidraft.sampling import SamplingParams


@dataclass(frozen=True)
class Evidence:
    """Verified positions at which drafters are to be evaluated.

    Attributes:
        context: all verified tokens, the prompt included.
        start: the positions meant are ``start … len(context) - 1``; ``start >= 1``.
        p: target probabilities ``(m, V)`` there, for sampled runs; ``None`` for greedy ones.
        params: the run's sampling parameters.
    """

    context: Sequence[int]
    start: int
    p: torch.Tensor | None
    params: SamplingParams

    def __len__(self) -> int:
        return len(self.context) - self.start


class Drafter(ABC):
    """Proposes the tokens that may follow a context.

    A drafter is handed the whole verified context each time and finds out itself which part of it is
    new: it catches up on tokens it has not seen in one prefill and forgets drafted tokens that were not
    accepted. No call order can therefore desynchronise it.
    """

    name: str
    kind: str
    parameter_count: int = 0
    group: DrafterGroup | None = None
    """The group that evaluates this drafter together with others, if any."""

    @abstractmethod
    def prepare(self, context: Sequence[int]) -> None:
        """Begin a new query with the prompt ``context``; what was cached before is forgotten."""

    @abstractmethod
    def propose(
        self,
        context: Sequence[int],
        length: int,
        params: SamplingParams,
        generator: torch.Generator,
        *,
        with_q: bool = False,
    ) -> Draft:
        """Propose up to ``length`` tokens to follow ``context``; an empty draft if there is nothing to say.

        Args:
            params: at temperature 0 the draft is deterministic, otherwise drafters with a distribution
                sample from it after temperature, top-k and top-p.
            with_q: carry the probabilities at temperature 0 too (for BD); sampled drafts always do.
        """

    def observe(self, draft: Draft, logits: torch.Tensor) -> None:  # noqa: B027 (most have nothing to do)
        """See what the target made of a draft of one's own, after it was verified; most drafters need not.

        Args:
            logits: the target's logits ``(n + 1, V)``: row 0 after the context, row ``j + 1`` after node ``j``.
        """

    @abstractmethod
    def gamma(self, evidence: Evidence) -> np.ndarray:
        """Acceptance probabilities ``(m,)`` float64 at the verified positions (SPEC 3), teacher-forced."""

    @abstractmethod
    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        """For each position ``s = start … len(context) - 1`` how many leading tokens of the greedy draft of
        up to ``length`` tokens begun at ``s`` equal the recorded text; int64 ``(len(context) - start,)`` (SPEC 6)."""


class DrafterGroup(Protocol):
    """Drafters that are evaluated in one forward; rows and columns as in :class:`Drafter`, members in order."""

    @property
    def members(self) -> Sequence[Drafter]:
        """The drafters, in the order of the columns."""

    def prepare(self, context: Sequence[int]) -> None:
        """Begin a new query for all members."""

    def gamma(self, evidence: Evidence) -> np.ndarray:
        """Acceptance probabilities ``(m, members)``."""

    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        """Accepted leading tokens ``(members, positions)``."""


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix.

    Contexts of thousands of tokens mostly differ in their last few: comparing slices and halving beats a Python loop.
    """
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # the first `low` tokens agree, the first `high` do not
        middle = (low + high) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle)
    return low
