"""Use of target and drafters for one thread at a time."""

from __future__ import annotations

import threading

import torch

from drafters.models.onnx_session import shared_threads


class DeviceLock:
    """Use of target and drafters for one thread, which may take it again.

    Args:
        one_thread: let torch run on one thread meanwhile. What is left to it beside ONNX Runtime is small, and its
            threads would wait for cores that the other's threads hold.
    """

    def __init__(self, *, one_thread: bool = False) -> None:
        self._lock, self._depth, self._one_thread = threading.RLock(), 0, one_thread

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1
        if self._one_thread and self._depth == 1:
            torch.set_num_threads(1)

    def all_threads(self) -> None:
        """Let torch have all threads until the lock is released, for work of its own while the others rest."""
        if self._one_thread:
            torch.set_num_threads(shared_threads())

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._one_thread and self._depth == 0:  # not what it was before: another thread may have found it at one
            torch.set_num_threads(shared_threads())
        self._lock.release()
