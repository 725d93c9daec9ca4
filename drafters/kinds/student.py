"""``student``: a small causal LM that goes on learning from what the target writes (online speculative decoding, Liu et
al. 2023, arXiv 2310.07177)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from pydantic import Field
from transformers import PreTrainedModel

from drafters.base import Drafter, Lesson
from drafters.checkpoints.digest import digest_of
from drafters.checkpoints.hub import MODEL_FILES
from drafters.checkpoints.loading import drafter_tokenizer, load_model, same_tokens
from drafters.errors import PoolError
from drafters.kinds.base import BuildContext, Confidence, Footprint, ModelEntry, SizeContext, register
from drafters.kinds.lm import PADDING, LMDrafter, footprint_of
from drafters.learning.distil import ModelCourse
from drafters.learning.learner import Course, Learner, Learnt, Model, Runner, Schedule
from drafters.models.decoder import Decoder

TRAINING_BYTES = 16
"""Of each parameter while it is trained: float32 weight, gradient and the two means of AdamW."""


class Student(Drafter):
    """A drafter that learns: each query is drafted with one version, the newest when it began, or the first where the
    newest knows nothing of its kind.

    Attributes:
        learner: what trains, for all texts; its versions draft.
        learns: whether it goes on learning.
        learnt: the version of the present query.
    """

    learner: Learner[Any, Any]
    learnt: Learnt[Any, Any]

    def taught_by(self, learner: Learner[Any, Any], learns: bool) -> None:
        """Draft with what ``learner`` has learnt, and go on learning if wanted and if there is time for it."""
        self.learner, self.learns = learner, learns and learner.schedule.share > 0
        self.adopt(learner.current)

    def begin(self, context: Sequence[int]) -> None:
        chosen = self.learner.version_for(self.place(context))
        if chosen.version != self.learnt.version:
            self.adopt(chosen)

    def place(self, context: Sequence[int]) -> torch.Tensor | None:
        """Where a prompt stands among others, if known; see :meth:`~drafters.learning.learner.Course.place`."""
        return None

    @abstractmethod
    def adopt(self, learnt: Learnt[Any, Any]) -> None:
        """Draft with a version from now on."""
        self.learnt, self.version = learnt, str(learnt.version)

    def learn(self, lesson: Lesson) -> None:
        if self.learns:
            self.learner.learn(lesson)

    def study(self) -> float:
        return self.learner.study() if self.learns else 0.0

    def report(self) -> str:
        current = self.learner.current
        version = f"version {current.version}"
        if current.agreement is not None:
            version += f", guesses {current.agreement:.0%} of {current.tokens:,} held-out tokens"
        return version if self.learns else f"{version}; learning is off"


class StudentDrafter(Student, LMDrafter):
    """Drafts as :class:`~drafters.kinds.lm.LMDrafter`."""

    def __init__(
        self,
        name: str,
        learner: Learner[PreTrainedModel, Decoder],
        vocab_size: int,
        confidence: float,
        *,
        learns: bool,
    ):
        super().__init__(name, learner.current.runner.twin(), vocab_size, None, confidence)
        self.taught_by(learner, learns)

    def adopt(self, learnt: Learnt[PreTrainedModel, Decoder]) -> None:
        super().adopt(learnt)
        self.model = learnt.runner.twin()


class LearningEntry(ModelEntry):
    """What entries of all students say."""

    confidence: Confidence = 0.0
    share: float = Field(Schedule.share, ge=0, le=0.5, description="of the device's time for learning; 0 for none")
    memory: int = Field(Schedule.memory, ge=4096, le=10_000_000, description="tokens of past texts that it learns from")
    passes: float = Field(Schedule.passes, gt=0, le=100, description="how often it trains on as many tokens as are new")
    rate: float = Field(Schedule.rate, gt=0, lt=1, description="learning rate")

    def learner(self, course: Course[Model, Runner], model: Model, context: BuildContext) -> Learner[Model, Runner]:
        """What trains it, from where it was left."""
        schedule = Schedule(self.share, self.memory, self.passes, self.rate)
        folder = context.learnt / self.name if context.learnt else None
        return Learner(course, model, schedule, folder, f"drafter {self.name!r}")


@register
class StudentEntry(LearningEntry):
    """A drafter of kind ``student``."""

    title = "student"
    description = "a causal LM that goes on learning from what the target writes"
    source_files = MODEL_FILES

    kind: Literal["student"]

    def footprint(self, context: SizeContext) -> Footprint:
        alone = footprint_of(self.source, context)
        # Beside the version in use there are the first, one in training and, at a swap, the one to come.
        learning = TRAINING_BYTES * alone.parameters + 2 * alone.weights
        return replace(alone, working=alone.working + learning)

    def build(self, context: BuildContext) -> StudentDrafter:
        who, target = f"drafter {self.name!r}", context.target
        model = load_model(self.source, context.card, context.model.dtype, str(target.device), who)
        own, size = drafter_tokenizer(self.source, context.card), int(model.config.get_text_config().vocab_size)
        if (own and not same_tokens(own, context.tokenizer)) or abs(size - target.vocab_size) > PADDING:
            raise PoolError(
                f"{who} has another vocabulary than the target ({size:,} tokens, {target.vocab_size:,}), so it cannot "
                "learn from the target's probabilities. Begin with a model of the target's own family, or use kind lm"
            )
        learner = self.learner(ModelCourse(), model, context)
        drafter = StudentDrafter(self.name, learner, target.vocab_size, self.confidence, learns=context.learns)
        drafter.digest, drafter.outputs = digest_of(model.state_dict()), target.vocab_size
        return drafter
