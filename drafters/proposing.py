"""Drafters of deterministic drafts: γ and acceptances are found by letting them draft at every position anew."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from torch import Generator

from drafters.base import Acceptances, Drafter, Evidence, FeatureSource
from drafters.draft import Draft
from drafters.sampling import SamplingParams
from drafters.tree import acceptances_of, gamma_of_drafts


class ProposingDrafter(Drafter):
    """A drafter whose greedy drafts are found by letting it draft at every position anew."""

    def drafts(self, context: Sequence[int], begins: range, length: int) -> Iterable[Draft]:
        """The drafts of up to ``length`` tokens begun at the consecutive positions ``begins`` of ``context``.

        By default the drafter proposes at each; override it where that can be had for less.
        """
        params, generator = SamplingParams(), Generator()  # deterministic drafts draw nothing
        return (self.propose(context[:begin], length, params, generator) for begin in begins)

    def acceptances(self, context: Sequence[int], start: int, length: int) -> Acceptances:
        return acceptances_of(self.drafts(context, range(start, len(context)), length), context, start, length)


class PointMassDrafter(ProposingDrafter):
    """A drafter of deterministic drafts without a distribution: it needs only :meth:`draft`, or :meth:`propose`."""

    def draft(self, context: Sequence[int], length: int) -> Draft:
        """What it proposes, at whatever temperature."""
        raise NotImplementedError(f"{type(self).__name__} needs a method draft(self, context, length)")

    def propose(
        self, context: Sequence[int], length: int, params: SamplingParams, generator: Generator, *, with_q: bool = False
    ) -> Draft:
        return self.draft(context, length)

    def gamma(self, evidence: Evidence) -> np.ndarray:
        drafts = self.drafts(evidence.context, evidence.begins(), evidence.params.draft_length)
        return gamma_of_drafts(list(drafts), evidence)


class ReadingDrafter(PointMassDrafter):
    """A drafter that notes what it reads of a text, in :meth:`prepare`, and has nothing else that belongs to it."""

    def fresh(self) -> Self:
        """The same drafter that has read nothing yet."""
        fresh = copy.copy(self)
        fresh.forget()
        return fresh

    def twin(self, target: FeatureSource) -> Self:
        return self.fresh()

    def forget(self) -> None:
        self.prepare(())


class FeatureDrafter(ProposingDrafter):
    """A drafter that reads hidden states of the target.

    Attributes:
        source: where they come from.
        layers: those that it reads.
    """

    source: FeatureSource
    layers: tuple[int, ...]

    def twin(self, target: FeatureSource) -> Self:
        twin = copy.copy(self)
        twin.source = target
        return twin

    def drafts(self, context: Sequence[int], begins: range, length: int) -> Iterable[Draft]:
        self.source.features(context, self.layers)  # read once what all prefixes need
        return super().drafts(context, begins, length)


class BlockDrafter(FeatureDrafter, PointMassDrafter):
    """A drafter that writes a block of tokens at once: a chain of point masses, each token the likeliest to it.

    Where a block has the size that its network was trained with, the first tokens of a longer one are taken.
    """

    def twin(self, target: FeatureSource) -> Self:
        twin = super().twin(target)
        twin.forget()
        return twin

    def prepare(self, context: Sequence[int]) -> None:
        self.forget()
        self.draft(context, 1)

    def draft(self, context: Sequence[int], length: int) -> Draft:
        if len(context) < 2 or length < 1:  # a context of one token has no hidden states yet
            return Draft.empty()
        try:
            return Draft.chain(self.block(list(context), length)[:length])
        except BaseException:  # a forward that fails leaves the cache in an undefined state
            self.forget()
            raise

    @abstractmethod
    def forget(self) -> None:
        """Empty the cache."""

    @abstractmethod
    def block(self, context: list[int], length: int) -> list[int]:
        """The tokens that the network puts after ``context``, which has two at least: ``length`` if it can, or as many
        as it always does."""
