"""How a kind of model is taught what its target writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import nn

from drafters.base import Lesson

Model = TypeVar("Model", bound=nn.Module)
Runner = TypeVar("Runner")


class Course(ABC, Generic[Model, Runner]):
    """How a kind of model is taught."""

    @abstractmethod
    def runner(self, model: Model) -> Runner:
        """What drafts with a model, ready to; texts take twins of it."""

    @abstractmethod
    def fits(self, lesson: Lesson) -> bool:
        """Whether it can be learnt from."""

    @abstractmethod
    def loss(self, model: Model, lessons: Sequence[Lesson]) -> torch.Tensor:
        """What training makes small."""

    @abstractmethod
    def agreed(self, model: Model, lesson: Lesson) -> int:
        """How many tokens of an answer a model finds the likeliest, each after those before it."""

    def place(self, prompt: int, states: torch.Tensor | None) -> torch.Tensor | None:
        """Where a text stands among others by what the target makes of its prompt: a vector of length 1, near for texts
        of one kind. ``None`` where these models do not read it.

        Args:
            prompt: tokens of the prompt.
            states: hidden states of the text as in :class:`~drafters.base.Lesson`, at least those of its prompt.
        """
        return None
