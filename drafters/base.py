"""The drafter interface: whatever can propose tokens for the target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Generator

from drafters.draft import Draft
from drafters.sampling import SamplingParams


class FeatureSource(Protocol):
    """Where drafters get hidden states of the target from; layers are counted as in ``transformers``: ``i`` is what
    enters layer ``i``, and their number is what leaves the final norm."""

    def watch(self, layers: Sequence[int]) -> None:
        """Keep the hidden states of these layers from now on, besides those asked for before."""

    def features(self, context: Sequence[int], layers: Sequence[int]) -> torch.Tensor:
        """Hidden states ``(len(context) - 1, len(layers) * hidden)`` of all tokens but the last: the target has
        scored those, while the last one is still to be fed to it. Valid until another text begins."""


@dataclass(frozen=True)
class Evidence:
    """Verified positions at which drafters are to be evaluated.

    Attributes:
        context: all verified tokens, the prompt included.
        start: the positions meant are ``start … len(context) - 1``; ``start >= 1``.
        p: target probabilities ``(m, V)`` there, for sampled runs; ``None`` for greedy ones.
        params: the run's sampling parameters.
        first: where the first draft may have begun: the end of the prompt, within which nothing is drafted; >= 1.
    """

    context: Sequence[int]
    start: int
    p: torch.Tensor | None
    params: SamplingParams
    first: int = 1

    def __len__(self) -> int:
        return len(self.context) - self.start

    def begins(self, first: int = 1) -> range:
        """Where drafts begin that reach any of these positions, from ``first`` on."""
        return range(max(self.start - self.params.draft_length + 1, self.first, first), len(self.context))


TOP = 8
"""Likeliest tokens of the target that are kept of each position: what is left out is a fraction of a percent of the
probability where it is certain, a few percent where it is not."""


@dataclass(frozen=True)
class Lesson:
    """A text that the target has written, for drafters that learn from past texts.

    Attributes:
        prompt, answer: token ids.
        top_ids: the target's likeliest tokens ``(len(answer), TOP)`` where each token of the answer stands, int64 on
            the CPU, from its own forwards; ``None`` where they are not known.
        top_probs: their probabilities at temperature 1, float32.
        states: hidden states of the target ``(tokens - 1, layers * hidden)`` of all tokens of prompt and answer but the
            last, of the layers that the drafter reads which keeps the lesson; in half precision, on the CPU.
    """

    prompt: list[int]
    answer: list[int]
    top_ids: torch.Tensor | None = None
    top_probs: torch.Tensor | None = None
    states: torch.Tensor | None = None


class Acceptances(NamedTuple):
    """What greedy drafts begun at each position of a finished text hold, and how far the text follows them.

    int64 arrays ``(positions,)``, or ``(drafters, positions)`` for several drafters.

    Attributes:
        accepted: leading tokens that equal the text.
        drafted: tokens of the draft's longest path.
        nodes: tokens of the whole draft; those of a chain are ``drafted``.
    """

    accepted: np.ndarray
    drafted: np.ndarray
    nodes: np.ndarray


def hits_by_depth(accepted: np.ndarray, length: int) -> np.ndarray:
    """γ at temperature 0 by depth, float64 ``(positions, K, N)``: ``[t, k, i]`` is 1 where drafter ``i``'s draft begun
    at ``t - k`` has more than ``k`` tokens accepted, else 0.

    Args:
        accepted: accepted leading tokens of the draft begun at each position, int ``(N, positions)``.
        length: K.
    """
    drafters, positions = accepted.shape
    hits = np.zeros((positions, length, drafters))
    for depth in range(min(length, positions)):
        hits[depth:, depth] = (accepted[:, : positions - depth] > depth).T
    return hits


class Drafter(ABC):
    """Proposes the tokens that may follow a context.

    A drafter is handed the whole verified context each time and finds out itself which part of it is
    new: it catches up on tokens it has not seen in one prefill and forgets drafted tokens that were not
    accepted. No call order can therefore desynchronise it.

    Attributes:
        kind: what its entry in the card calls it, where its class does not say.
        group: evaluates this drafter together with others, if any.
        stored_bytes: bytes of the weights that it drafts with, where they are quantised.
        outputs: how many tokens its model can draft, those of its token map alone if it has one; 0 where none computes.
        digest: of the weights or files it was made from, where its entry in the card does not say all.
        learns: whether :meth:`learn` wants the target's probabilities.
        version: of what it has learnt, as the present query drafts with it; empty where queries do not change it.
    """

    name: str
    kind: str = ""
    parameter_count: int = 0
    stored_bytes: int | None = None
    outputs: int = 0
    group: DrafterGroup | None = None
    digest: str = ""
    learns: bool = False
    version: str = ""

    def begin(self, context: Sequence[int]) -> None:  # noqa: B027 (most are always the same)
        """Choose what to draft with in the query that begins with the prompt ``context``; before all else."""

    def prepare(self, context: Sequence[int]) -> None:  # noqa: B027 (some cache nothing)
        """Begin a new query with the prompt ``context``, and read it; what was cached before is forgotten."""

    def forget(self) -> None:  # noqa: B027
        """Begin a new query without reading the prompt: what was cached before is forgotten."""

    def twin(self, target: FeatureSource) -> Drafter:
        """The same drafter for another text that is decoded at the same time and verified by ``target``: weights are
        shared, what it keeps of a text is its own. By default itself: one for all texts, which will do where a draft
        depends on nothing but the context."""
        return self

    @abstractmethod
    def propose(
        self, context: Sequence[int], length: int, params: SamplingParams, generator: Generator, *, with_q: bool = False
    ) -> Draft:
        """Propose up to ``length`` tokens to follow ``context``; an empty draft if there is nothing to say.

        Args:
            params: at temperature 0 the draft is deterministic, otherwise drafters with a distribution
                sample from it after temperature, top-k and top-p.
            with_q: carry the probabilities at temperature 0 too (for BD); sampled drafts always do.
        """

    def observe(self, draft: Draft, logits: torch.Tensor) -> None:  # noqa: B027 (most have nothing to do)
        """See the target's logits for a draft of its own, after verification; most drafters do not need them.

        Args:
            logits: the target's logits ``(n + 1, V)``: row 0 after the context, row ``j + 1`` after node ``j``.
        """

    def learn(self, lesson: Lesson) -> None:  # noqa: B027
        """Take note of a text that has ended, for queries to come; most drafters do not. It is called between rounds,
        so it has to be quick."""

    def study(self) -> float:
        """Work for a moment on what there is to learn, between queries; returns the seconds that it took, 0 where there
        is nothing to do, or not yet."""
        return 0.0

    def report(self) -> str:
        """What it has learnt, in a sentence; empty where it does not learn."""
        return ""

    @abstractmethod
    def gamma(self, evidence: Evidence) -> np.ndarray:
        """Acceptance probabilities float64 at the verified positions: ``(m,)`` where they do not depend on the depth in
        the draft, else ``(m, K)`` with K the draft length of ``evidence.params``.

        ``[t, k]`` is the probability that the target accepts the token which follows ``k`` accepted ones in a draft
        begun at ``t - k``; 0 where such a draft ends before, or does not hold the text so far (HedgeSpec Theorem 3).
        """

    @abstractmethod
    def acceptances(self, context: Sequence[int], start: int, length: int) -> Acceptances:
        """The greedy drafts of up to ``length`` tokens begun at each position ``start … len(context) - 1`` of a
        finished text."""


class DrafterGroup(Protocol):
    """Drafters that are evaluated in one forward. Its methods are those of a :class:`Drafter`; the members, in order,
    are a last axis of γ, and make ``(members, positions)`` of the arrays of acceptances."""

    @property
    def members(self) -> Sequence[Drafter]: ...
    def twin(self, target: FeatureSource) -> DrafterGroup: ...
    def prepare(self, context: Sequence[int]) -> None: ...
    def gamma(self, evidence: Evidence) -> np.ndarray: ...
    def acceptances(self, context: Sequence[int], start: int, length: int) -> Acceptances: ...


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    low, high = 0, min(len(a), len(b))  # long contexts mostly differ in their last tokens: slices beat a Python loop
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # the first `low` tokens agree, the first `high` do not
        middle = (low + high) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle)
    return low
