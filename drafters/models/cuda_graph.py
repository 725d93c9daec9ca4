"""CUDA graphs: all kernels of a function recorded once, and launched by one call from then on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import torch

from drafters.errors import first_line
from drafters.hardware import is_out_of_memory

log = logging.getLogger(__name__)

T = TypeVar("T")


class Graphs:
    """Where the graphs of one model are recorded: a stream beside the current one, and memory that they share. They are
    launched one after the other, and what one leaves is read before the next one is launched. Other models may be at
    work in other threads, so each has its own.

    Attributes:
        given_up: set for all models as soon as recording or launching has failed for one.
    """

    given_up: ClassVar[bool] = False

    def __init__(self, device: torch.device):
        self.device, self.available = device, device.type == "cuda"

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)

    @cached_property
    def _pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def directly(self, function: Callable[[], T]) -> T:
        """Run something as it is. Triton launches kernels on the current device, wherever their tensors are."""
        with torch.cuda.device(self.device if self.device.type == "cuda" else -1):
            return function()

    def beside(self, function: Callable[[], T]) -> T:
        """Run something on the stream on which graphs are recorded."""
        current = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                return function()
        finally:
            current.wait_stream(self._stream)

    def record(self, function: Callable[[], T]) -> tuple[Callable[[], None], T]:
        """What launches all kernels of a function, and where they leave its result; nothing is computed yet."""
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile, for another pool that is being loaded for instance.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            result = function()
        return graph.replay, result


class Replayed(Generic[T]):
    """A function that reads tensors which stay where they are, and does the same to them each time.

    The first call runs it as it is, which lets libraries choose their kernels; the second records it, so that what is
    asked for once costs no recording; from then on its kernels are launched together. Without a GPU, where ``captured``
    is false, or after recording or launching has failed, it is simply called.

    Args:
        function: without arguments; it must neither wait for the device nor depend on what numbers it finds, and come
            to the same when it is called again.
        graphs: where it is recorded.

    Source: CUDA C++ Programming Guide, "CUDA Graphs"; PyTorch, ``torch.cuda.CUDAGraph``.
    """

    def __init__(self, function: Callable[[], T], graphs: Graphs, *, captured: bool = True):
        self._function, self._graphs = function, graphs
        self.captured = captured and graphs.available
        self._warm = False
        self._recorded: tuple[Callable[[], None], T] | None = None

    def __call__(self) -> T:
        """What the function returns; valid until the next call of any :class:`Replayed` of these graphs."""
        if not self.captured or Graphs.given_up:
            return self._graphs.directly(self._function)
        try:
            return self._replayed()
        except Exception as error:
            result = self._graphs.directly(self._function)  # raises too where it was not for the graph
            self._go_without(error)
            return result

    def _replayed(self) -> T:
        if not self._warm:
            result = self._graphs.beside(self._function)
            self._warm = True
            return result
        if self._recorded is None:
            self._recorded = self._graphs.beside(lambda: self._graphs.record(self._function))
        replay, result = self._recorded
        replay()
        return result

    def _go_without(self, error: Exception) -> None:
        self.captured, self._recorded = False, None
        if is_out_of_memory(error):  # smaller ones may fit
            log.warning("no memory for a CUDA graph; its kernels are launched one by one: %s", first_line(error))
        elif not Graphs.given_up:
            Graphs.given_up = True
            log.warning(
                "CUDA graphs do not work here; kernels are launched one by one, which is slower: %s: %s",
                type(error).__name__,
                first_line(error),
            )
