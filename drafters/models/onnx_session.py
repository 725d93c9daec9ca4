"""Sessions of ONNX Runtime, and how their inputs and outputs are bound to memory that is used again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Generic, TypeVar

import numpy as np
import onnxruntime
import torch

from drafters.models.graph import Graph

HELD_TOKENS, HELD_BUFFERS = 32, 24
"""Buffers are held for the next time for inputs of up to so many tokens; so many of them, those used last."""

NO_TILES = "ORT_GQA_DISABLE_FLASH_ATTENTION"
"""Read by ONNX Runtime when a session is made: attention scores are computed whole, not in tiles. Tiles take up to
twice as long for prompts of up to some thousand tokens, and longer for single tokens, but less memory."""

threads: int | None = None
"""How many threads the sessions have, where that is set before the first model is made."""


def elsewhere(dtype: torch.dtype, device: str) -> str | None:
    """Why ONNX Runtime runs nothing in ``dtype`` on ``device``; ``None`` if it does."""
    if dtype == torch.float32 and device.startswith("cpu"):
        return None
    return f"{dtype} on {device}: ONNX Runtime is for float32 on the CPU"


@cache
def shared_threads() -> int:
    """Give all sessions one pool of threads: the idle threads of one session would slow the others.

    Returns how many: :data:`threads`, or as many as torch has when the first model is made.
    """
    count = threads or torch.get_num_threads()
    onnxruntime.set_global_thread_pool_sizes(count, 1)
    return count


Array = np.ndarray | torch.Tensor


@torch.inference_mode(False)
def session_of(graph: Graph, *, tiles: bool = False) -> onnxruntime.InferenceSession:
    """A session that reads the weights of ``graph`` where they are, which therefore has to live as long; packed copies
    of the matrices are made here, so later changes of the weights have no effect.

    Args:
        tiles: whether attention is computed in tiles, for prompts that are fed in one piece.
    """
    shared_threads()
    options = onnxruntime.SessionOptions()
    options.use_per_session_threads = False
    options.log_severity_level = 3
    weights = [onnxruntime.OrtValue.ortvalue_from_numpy(w.detach().numpy()) for w in graph.weights.values()]
    options.add_external_initializers(list(graph.weights), weights)
    before = os.environ.get(NO_TILES)
    os.environ[NO_TILES] = "0" if tiles else "1"
    try:
        return onnxruntime.InferenceSession(
            graph.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    finally:  # other users of ONNX Runtime in this process see nothing of it
        if before is None:
            del os.environ[NO_TILES]
        else:
            os.environ[NO_TILES] = before


@cache
def _shrinking() -> onnxruntime.RunOptions:
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def run_options(tokens: int) -> onnxruntime.RunOptions | None:
    """For a forward of so many tokens of a text: of many, a session gives back what it took, or it would keep it."""
    return _shrinking() if tokens > HELD_TOKENS else None


def bind(binding: onnxruntime.IOBinding, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
    """Bind arrays on the CPU as they lie in memory, which has to live as long, in place of those bound before. An array
    may be input and output where the graph is done with reading it before the output is written."""
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, *_layout(array))
    for name, array in outputs.items():
        binding.bind_output(name, "cpu", 0, *_layout(array))


def _layout(array: Array) -> tuple[type, tuple[int, ...], int]:
    if isinstance(array, torch.Tensor):  # without its numbers' values: it may be one of inference mode
        return np.float32, tuple(array.shape), array.data_ptr()
    return array.dtype.type, array.shape, array.ctypes.data


B = TypeVar("B")


class Held(Generic[B]):
    """Buffers by the shape that they are for: those used last."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, ...], B] = {}

    def __len__(self) -> int:
        return len(self._buffers)

    def get(self, shape: tuple[int, ...]) -> B | None:
        """Those of a shape, now the newest."""
        if found := self._buffers.pop(shape, None):
            self._buffers[shape] = found
        return found

    def put(self, shape: tuple[int, ...], buffers: B) -> None:
        """Hold buffers, and those used longest ago no more."""
        self._buffers[shape] = buffers
        if len(self._buffers) > HELD_BUFFERS:
            del self._buffers[next(iter(self._buffers))]
