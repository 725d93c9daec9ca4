"""A stand-in for the package ``spaces`` of ZeroGPU, without a GPU: it forks, pickles and ends calls as that one does.

Written after the behaviour of ``spaces`` 0.51. A worker is forked at the first call and kept while it is idle.
Arguments go to it, and what it yields comes back, pickled. Closing the generator sets an event at which the worker
closes its own. Errors come back as ``gr.Error`` with no more than the name of their class, and a worker that dies
aborts the call.

``SPACES_STANDIN_LOG`` names a file to which each call adds a line: the process of its worker and the seconds asked for.
"""

from __future__ import annotations

import functools
import inspect
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.queues import SimpleQueue
from typing import Any

import gradio as gr
import torch

_fork = multiprocessing.get_context("fork")


class Worker:
    """A forked process that runs one generator after the other."""

    def __init__(self, task: Callable[..., Iterator[Any]]):
        self.arguments, self.results = SimpleQueue(ctx=_fork), SimpleQueue(ctx=_fork)
        self.stop = _fork.Event()
        self.process = _fork.Process(target=self._work, args=(task,), daemon=True)
        self.process.start()
        threading.Thread(target=self._tell_of_death, daemon=True).start()

    def _tell_of_death(self) -> None:
        self.process.join()
        self.results.put(("aborted", None))

    def _work(self, task: Callable[..., Iterator[Any]]) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        torch.set_num_threads(1)  # the threads of OpenMP did not come along
        while True:
            arguments = self.arguments.get()
            self.stop.clear()
            thread = threading.Thread(target=self._iterate, args=(task, arguments))
            thread.start()
            thread.join()
            self.results.put(("end", None))

    def _iterate(self, task: Callable[..., Iterator[Any]], arguments: tuple[Any, ...]) -> None:
        generator = task(*arguments)
        try:
            for value in generator:
                if self.stop.is_set():
                    generator.close()
                    return
                self.results.put(("value", value))
        except Exception as error:
            traceback.print_exc()
            self.results.put(("error", type(error).__name__))


def gradio_auto_wrap(task: Any) -> Any:
    """Gradio calls it with each listener."""
    return task


def GPU(task: Callable[..., Any] | None = None, *, duration: Any = None) -> Any:
    """The decorator, for generator functions."""
    if task is None:
        return functools.partial(GPU, duration=duration)
    if not os.environ.get("SPACES_ZERO_GPU"):
        return task
    assert inspect.isgeneratorfunction(task)
    idle: list[Worker] = []

    @functools.wraps(task)
    def call(*arguments: Any) -> Iterator[Any]:
        seconds = duration(*arguments) if callable(duration) else duration
        worker = idle.pop() if idle else None
        if worker is None or not worker.process.is_alive():
            worker = Worker(task)
        if log := os.environ.get("SPACES_STANDIN_LOG"):
            with open(log, "a") as file:
                print(worker.process.pid, seconds, file=file)
        worker.arguments.put(arguments)
        ended = False
        try:
            while True:
                kind, value = worker.results.get()
                if kind == "value":
                    yield value
                    continue
                ended = kind in ("end", "aborted")
                if kind == "aborted":
                    raise gr.Error("GPU task aborted", title="ZeroGPU worker error", print_exception=False)
                if kind == "error":
                    raise gr.Error(value, title="ZeroGPU worker error", print_exception=False)
                return
        finally:
            if not ended:
                worker.stop.set()
                while worker.results.get()[0] not in ("end", "aborted"):
                    pass
            if worker.process.is_alive():
                idle.append(worker)

    return call
