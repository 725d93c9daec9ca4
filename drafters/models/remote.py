"""A target that another engine runs: here is what drafters have to know of it, and what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from transformers import PreTrainedModel

from drafters.errors import PoolError
from drafters.models.decoder import Decoder
from drafters.models.streams import answer
from drafters.models.target import Target


class Engine:
    """Stands for the other engine where streams wait for it; see :meth:`~drafters.models.streams.Streams.resume`."""

    def run(self, calls: Sequence[Any]) -> NoReturn:
        """Nothing here can answer."""
        raise RuntimeError("this target runs in another engine, which has to be asked for what it wrote")


class RemoteDecoder(Decoder):
    """What takes the place of a forward; see :class:`~drafters.models.decoder.Decoder`.

    Args:
        engine: common to all texts under way.
        window: most tokens of a context.
    """

    def __init__(self, engine: Engine, window: int):
        self.runs, self.window, self.parameter_count = engine, window, 0

    def twin(self) -> RemoteDecoder:
        return RemoteDecoder(self.runs, self.window)

    def forward(self, ids: Sequence[int], start: int, *, last: int | None = None, **_: Any) -> Any:
        """The tokens that the engine writes after the context when it is given a draft: ``ids`` after the first. A
        prompt (``last`` is given then) it has read already."""
        return answer(self.runs, ids[1:], len(ids)) if last is None else None

    def keep(self, start: int, kept: Sequence[int]) -> None:
        """The engine keeps what it wrote."""


class RemoteTarget(Target):
    """A target of which only the shape is known here. It scores chains, and its hidden states are out of reach.

    Args:
        model: the target without its weights, on the ``meta`` device.
        window: most tokens of a context.
        device: where the drafters are.
    """

    def __init__(self, model: PreTrainedModel, window: int, device: str):
        super().__init__(model, RemoteDecoder(Engine(), window))
        self.device, self.trees = torch.device(device), False

    def watch(self, layers: Sequence[int]) -> None:
        """Raise PoolError: hidden states stay in the other engine."""
        raise PoolError("a drafter reads the target's hidden states, which are in another engine; leave it out")
