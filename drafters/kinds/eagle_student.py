"""``eagle-student``: an EAGLE-3 head that goes on learning from what the target writes.

Online speculative decoding (Liu et al. 2023, arXiv 2310.07177) with a head instead of a small model: it reads the
target's hidden states, which say more of what comes than the text alone, so there is less to learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Generator

from drafters.base import Evidence, FeatureSource, Lesson
from drafters.checkpoints.digest import digest_of
from drafters.checkpoints.eagle import read_head
from drafters.draft import Draft
from drafters.errors import PoolError
from drafters.kinds.base import BuildContext, Footprint, SizeContext, register
from drafters.kinds.eagle import EagleDrafter, footprint_of
from drafters.kinds.student import TRAINING_BYTES, LearningEntry, Student
from drafters.kinds.suffix import SuffixDrafter
from drafters.learning.heads import HeadCourse
from drafters.learning.learner import MOST_MEASURED, Learner, Learnt
from drafters.models.eagle_head import EagleHead, Made
from drafters.models.trainable_head import TrainableHead
from drafters.sampling import SamplingParams, certainties
from drafters.tree import gamma_of_drafts


class EagleStudent(Student, EagleDrafter):
    """Drafts chains as :class:`~drafters.kinds.eagle.EagleDrafter`, or copies.

    Where a suffix automaton of the text (:class:`~drafters.kinds.suffix.SuffixDrafter`) gives the token that it expects
    more probability than the head its own, the draft is the automaton's: what is said again need not be learnt, and is
    proposed from the first query on. The choice falls before anything is drawn and depends on the context alone, so
    sampled outputs keep their distribution. Copying beside predicting is the pointer of See et al. 2017
    (arXiv 1704.04368), per draft instead of per token: then the head makes no step for what is copied.

    What it learns from are the hidden states that the target's forwards have left of the text: none is made for it.
    """

    def __init__(
        self,
        name: str,
        learner: Learner[TrainableHead, EagleHead],
        source: FeatureSource,
        vocab_size: int,
        confidence: float = 0.0,
        *,
        learns: bool = True,
    ):
        super().__init__(name, learner.current.runner.twin(source), source, vocab_size, confidence=confidence)
        self.copier = SuffixDrafter(name, confidence=confidence)
        self.taught_by(learner, learns)

    def twin(self, target: FeatureSource) -> Self:
        twin = super().twin(target)
        twin.copier = self.copier.twin(target)
        return twin

    def place(self, context: Sequence[int]) -> torch.Tensor | None:
        if len(context) < 2 or self.learner.current is self.learner.start:
            return None
        return self.learner.course.place(len(context), self.source.features(context, self.layers))

    def prepare(self, context: Sequence[int]) -> None:
        super().prepare(context)
        self.copier.prepare(context)

    def forget(self) -> None:
        super().forget()
        self.copier.forget()

    def propose(
        self, context: Sequence[int], length: int, params: SamplingParams, generator: Generator, *, with_q: bool = False
    ) -> Draft:
        if len(context) < 2 or length < 1:
            return Draft.empty()
        made, copied = self.head.read(context, self.source, last=1), self.copier.rated(context, length)
        if copied.chance > np.exp(certainties(made.logits))[0]:
            return copied.draft
        return self._chain(made, len(context) - 1, length, params, generator, with_q=with_q)

    def _gamma(self, evidence: Evidence, begins: range, made: Made) -> np.ndarray:
        gamma = super()._gamma(evidence, begins, made)
        rated = self.copier.all_rated(evidence.context, begins, evidence.params.draft_length)
        copies = np.array([copied.chance for copied in rated]) > np.exp(certainties(made.logits))
        drafts = [copied.draft if copies[place] else Draft.empty() for place, copied in enumerate(rated)]
        positions, depths = np.indices(gamma.shape)
        places = positions + evidence.start - depths - begins.start
        gamma[(places >= 0) & copies[np.maximum(places, 0)]] = 0.0
        return gamma + gamma_of_drafts(drafts, evidence)

    def adopt(self, learnt: Learnt[TrainableHead, EagleHead]) -> None:
        super().adopt(learnt)
        self.head = learnt.runner.twin(self.source)

    def learn(self, lesson: Lesson) -> None:
        if self.learns and lesson.answer:
            states = self.source.features([*lesson.prompt, *lesson.answer], self.layers)
            super().learn(replace(lesson, states=states.to("cpu", torch.bfloat16, copy=True)))


@register
class EagleStudentEntry(LearningEntry):
    """A drafter of kind ``eagle-student``."""

    title = "EAGLE student"
    description = "an EAGLE-3 head that goes on learning from what the target writes"
    needs_target = True

    kind: Literal["eagle-student"]
    memory: int = Field(50_000, ge=4096, le=10_000_000, description="tokens of past texts that it learns from")

    def footprint(self, context: SizeContext) -> Footprint:
        plain, shape = footprint_of(self.source, context)
        more = int(context.target.config.get_text_config().vocab_size) - shape.vocab_size
        numbers = plain.parameters + more * shape.target_size
        kept = 2 * len(shape.layers) * shape.target_size * (self.memory + MOST_MEASURED)
        # Beside the version in use: in single precision this one, the first and the one in training; the first as it
        # drafts; and at a swap the one to come.
        weights = plain.weights // plain.parameters * numbers
        learning = (TRAINING_BYTES + 3 * 4) * numbers + 2 * weights
        return replace(plain, parameters=numbers, weights=weights, working=learning + kept)

    def build(self, context: BuildContext) -> EagleStudent:
        who = f"drafter {self.name!r}"
        shape, tensors = read_head(self.folder(context), context.model)
        if shape.generation != 3:
            raise PoolError(
                f"{who} is an EAGLE-1 or -2 head; students that are heads are EAGLE-3's. As kind eagle it drafts"
            )
        course = HeadCourse(shape, context.model)
        learner, target = self.learner(course, course.begin(tensors, who), context), context.target
        drafter = EagleStudent(self.name, learner, target, target.vocab_size, self.confidence, learns=context.learns)
        drafter.digest, drafter.outputs = digest_of(tensors), shape.vocab_size
        return drafter
