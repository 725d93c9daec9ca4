"""The steps of an EAGLE head on ONNX Runtime, on the CPU in float32."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime
import torch

from drafters.checkpoints.eagle import HeadShape
from drafters.models.decoder import Likeliest
from drafters.models.graph import rotation, unsupported_heads
from drafters.models.head_graph import FuseGraph, HeadGraph, HeadWeights
from drafters.models.onnx_session import HELD_TOKENS, Array, Held, bind, elsewhere, run_options, session_of


def unsupported(shape: HeadShape, dtype: torch.dtype, device: str) -> str | None:
    """Why :class:`OnnxHead` cannot run a head in ``dtype`` on ``device``; ``None`` if it can."""
    return elsewhere(dtype, device) or unsupported_heads(shape.head_size)


@dataclass(frozen=True)
class _Buffers:
    """Inputs and outputs of steps of one shape, bound once and used in place."""

    binding: onnxruntime.IOBinding
    fusing: onnxruntime.IOBinding | None
    inputs: dict[str, np.ndarray]
    features: np.ndarray
    hidden: np.ndarray
    made: np.ndarray
    logits: np.ndarray
    tokens: np.ndarray
    chances: np.ndarray


def _copied(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.copy())


class OnnxHead:
    """What runs the steps of one head.

    Args:
        shape, weights: of the head. The weights are shared, not copied, but for the packed matrices that ONNX Runtime
            keeps: later changes of them have no effect.
        int8: as of :class:`~drafters.models.graph.Graph`.
    """

    def __init__(self, shape: HeadShape, weights: HeadWeights, int8: bool):
        self._graph = HeadGraph(shape, weights, int8)  # lives as long as the session, which reads its weights
        self._session = session_of(self._graph, tiles=True)
        self._fuse_graph = FuseGraph(shape, weights, int8) if shape.generation == 3 else None
        self._fuse = session_of(self._fuse_graph) if self._fuse_graph else None
        self._width = weights.fc.shape[1]
        self._size, self._vocab_size = int(shape.config.hidden_size), len(weights.output)
        self._caches: dict[str, torch.Tensor] = {}
        self._rotation: dict[str, np.ndarray] = {}
        self._buffers = Held[_Buffers]()

    def twin(self) -> OnnxHead:
        """The same for another text, which has caches of its own; the session is shared."""
        twin = copy.copy(self)
        twin._buffers = Held()
        return twin

    def use(self, caches: Sequence[torch.Tensor], cos: torch.Tensor, sin: torch.Tensor) -> None:
        """Write to these caches from now on.

        Args:
            caches: of each layer, keys then values ``(1, 2 kv heads, room, head size)``.
            cos, sin: ``(room, head size / 2)``.
        """
        self._caches = {
            f"{part}_{layer}": half
            for layer, cache in enumerate(caches)
            for part, half in zip(("key", "value"), cache.chunk(2, dim=1), strict=True)
        }
        self._rotation = rotation(cos, sin)
        self._buffers = Held()

    def read(
        self, ids: Sequence[int], features: torch.Tensor, start: int, last: int
    ) -> tuple[torch.Tensor, torch.Tensor, Likeliest]:
        """As :meth:`~drafters.models.eagle_head.EagleHead.first_step`."""
        length = len(ids)
        buffers = self._held(length, last, masked=False, fused=self._fuse is not None)
        inputs = buffers.inputs
        inputs["ids"][0], inputs["past"][0] = ids, start + length - 1
        inputs["positions"][0] = range(start, start + length)
        if self._fuse is None:
            buffers.hidden[0] = features.numpy()
        else:
            buffers.features[0] = features.numpy()
            self._fuse.run_with_iobinding(buffers.fusing, run_options(length))
        self._session.run_with_iobinding(buffers.binding, run_options(length))
        likeliest = buffers.tokens[0].copy(), buffers.chances[0].copy()
        return _copied(buffers.made[0]), _copied(buffers.logits[0]), likeliest

    def step(
        self,
        ids: torch.Tensor,
        hidden: torch.Tensor,
        start: int,
        positions: torch.Tensor | None,
        mask: torch.Tensor | None,
        last: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As :meth:`~drafters.models.eagle_head.EagleHead.step`."""
        length = len(ids)
        buffers = self._held(length, last, masked=mask is not None)
        inputs = buffers.inputs
        inputs["ids"][0], inputs["past"][0] = ids.numpy(), start + length - 1
        inputs["positions"][0] = range(start, start + length) if positions is None else positions.numpy()
        buffers.hidden[0] = hidden.numpy()
        if mask is not None:
            inputs["bias"][0, 0, :, : start + length] = np.where(mask.numpy(), np.float32(0), -np.inf)
        self._session.run_with_iobinding(buffers.binding, run_options(length))
        return _copied(buffers.made[0]), _copied(buffers.logits[0])

    def draft(
        self, hidden: torch.Tensor, token: int, start: int, length: int, log_confidence: float, with_logits: bool
    ) -> tuple[list[int], list[torch.Tensor]]:
        """As :meth:`~drafters.models.eagle_head.EagleHead.draft`, after the first token. Each is fed where it is
        written; between steps there is as little Python as can be, as in
        :meth:`~drafters.models.onnx_model.OnnxModel.draft`.

        Args:
            hidden: the state before ``token``, ``(1, hidden)``.
            token: the first of the draft.
            length: most further tokens.
        """
        buffers = self._held(1, 1, masked=False, chained=True)
        run, binding, inputs = self._session.run_with_iobinding, buffers.binding, buffers.inputs
        past, position, doubts = inputs["past"], inputs["positions"][0], log_confidence > -math.inf
        inputs["ids"][0, 0] = token
        buffers.hidden[0] = hidden.numpy()
        tokens, rows, sure = list[int](), list[torch.Tensor](), 0.0
        while len(tokens) < length and sure >= log_confidence:
            past[0] = position[0] = start + len(tokens)
            run(binding)
            tokens.append(int(buffers.tokens[0, 0]))
            if with_logits:
                rows.append(_copied(buffers.logits[0]))
            if doubts:
                sure += float(buffers.chances[0, 0])
        return tokens, rows

    def _held(self, length: int, rows: int, *, masked: bool, chained: bool = False, fused: bool = False) -> _Buffers:
        """Buffers for ``length`` pairs and the logits of the last ``rows``; trees have biases of their own, and a chain
        writes what it makes of a pair where it reads the next; pairs may be fused of the target's states first."""
        key = length, rows, masked, chained, fused
        if found := self._buffers.get(key):
            return found
        room = next(iter(self._caches.values())).shape[2]
        ids = np.zeros((1, length), np.int64)
        inputs: dict[str, np.ndarray] = {
            "ids": ids,
            "rows": np.arange(length - rows, length),
            "positions": np.zeros((1, length), np.int64),
            "past": np.zeros(1, np.int32),
            "fed": np.full(1, length, np.int32),
            "total": np.array(room, np.int32),
            "bias": np.zeros((1, 1, length, room), np.float32),
            **self._rotation,
        }
        hidden = np.empty((1, length, self._size), np.float32)
        made, tokens = np.empty((1, rows, self._size), np.float32), np.empty((1, rows), np.int64)
        made, tokens = (hidden, ids) if chained else (made, tokens)
        logits = np.empty((1, rows, self._vocab_size), np.float32)
        chances = np.empty((1, rows), np.float32)
        outputs: dict[str, Array] = {"made": made, "logits": logits, "tokens": tokens, "chances": chances}
        outputs |= {f"new_{name}": cache for name, cache in self._caches.items()}
        read: dict[str, Array] = {**inputs, "hidden": hidden, **self._caches}
        bind(binding := self._session.io_binding(), read, outputs)
        fusing, features = None, np.empty((1, length if fused else 0, self._width), np.float32)
        if fused and self._fuse:
            bind(fusing := self._fuse.io_binding(), {"features": features}, {"hidden": hidden})
        buffers = _Buffers(binding, fusing, inputs, features, hidden, made, logits, tokens, chances)
        if length <= HELD_TOKENS:
            self._buffers.put(key, buffers)
        return buffers
