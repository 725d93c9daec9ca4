"""``student``: a small causal LM that goes on learning from what the target writes (online speculative decoding, Liu et
al. 2023, arXiv 2310.07177)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from drafters.base import Lesson
from drafters.checkpoints.digest import digest_of
from drafters.checkpoints.hub import MODEL_FILES
from drafters.checkpoints.loading import drafter_tokenizer, load_model, same_tokens
from drafters.checkpoints.model_sizes import text_config
from drafters.errors import PoolError
from drafters.kinds.base import BuildContext, Confidence, Footprint, ModelEntry, SizeContext, register
from drafters.kinds.lm import PADDING, LMDrafter, footprint_of
from drafters.learning.learner import Learner, Learnt, Schedule

TRAINING_BYTES = 16
"""Of each parameter while it is trained: float32 weight, gradient and the two means of AdamW."""


class StudentDrafter(LMDrafter):
    """Drafts as :class:`~drafters.kinds.lm.LMDrafter`, each query with the version that was the newest when it began.

    Args:
        learner: what trains, for all texts; its versions draft.
        learns: whether it goes on learning.
    """

    kind = "student"

    def __init__(self, name: str, learner: Learner, vocab_size: int, confidence: float = 0.0, *, learns: bool = True):
        super().__init__(name, learner.current.decoder.twin(), vocab_size, None, confidence)
        self.learner, self.learns = learner, learns
        self._adopt(learner.current)

    def forget(self) -> None:
        current = self.learner.current
        if current.version != self.learnt.version:
            self._adopt(current)
        super().forget()

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

    def _adopt(self, learnt: Learnt) -> None:
        self.learnt, self.version = learnt, str(learnt.version)
        self.model = learnt.decoder.twin()


@register
class StudentEntry(ModelEntry):
    """A drafter of kind ``student``."""

    title = "student"
    description = "a causal LM that goes on learning from what the target writes"

    kind: Literal["student"]
    confidence: Confidence = 0.0
    share: float = Field(Schedule.share, ge=0, le=0.5, description="of the device's time for learning; 0 for none")
    memory: int = Field(Schedule.memory, ge=4096, le=10_000_000, description="tokens of past texts that it learns from")
    passes: float = Field(Schedule.passes, gt=0, le=100, description="how often it trains on as many tokens as are new")
    rate: float = Field(Schedule.rate, gt=0, lt=1, description="learning rate")

    @property
    def source_files(self) -> Sequence[str]:
        return MODEL_FILES

    def footprint(self, context: SizeContext) -> Footprint:
        alone = footprint_of(self.source, context)
        # Beside the version in use there are one in training and, at a swap, the one to come.
        learning = TRAINING_BYTES * alone.parameters + alone.weights
        return replace(alone, working=alone.working + learning)

    def build(self, context: BuildContext) -> StudentDrafter:
        who, target = f"drafter {self.name!r}", context.target
        model = load_model(self.source, context.card, context.model.dtype, str(target.device), who)
        own, size = drafter_tokenizer(self.source, context.card), int(text_config(model).vocab_size)
        if (own and not same_tokens(own, context.tokenizer)) or abs(size - target.vocab_size) > PADDING:
            raise PoolError(
                f"{who} has another vocabulary than the target ({size:,} tokens, {target.vocab_size:,}), so it cannot "
                "learn from the target's probabilities. Begin with a model of the target's own family, or use kind lm"
            )
        schedule = Schedule(self.share, self.memory, self.passes, self.rate)
        folder = context.learnt / self.name if context.learnt else None
        learner = Learner(model, schedule, folder, who)
        learns = context.learns and self.share > 0
        drafter = StudentDrafter(self.name, learner, target.vocab_size, self.confidence, learns=learns)
        drafter.digest = digest_of(model.state_dict())
        return drafter
