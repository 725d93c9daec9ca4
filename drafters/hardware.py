"""What a measurement ran on, in words: stored with every run so that unlike machines are not compared; its clock."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from drafters.errors import PoolError, first_line

GIB = 1 << 30

ARENAS = 2
"""Places in which the C library keeps free memory, so that decoding and answering seldom wait for each other."""

TRIM_SECONDS = 5.0
"""Free memory goes back to the system no more often."""

_M_ARENA_MAX = -8  # of malloc.h

CONTROL_GROUP = Path("/sys/fs/cgroup")
"""Of the container that this runs in, if it does."""


def describe(device: torch.device | str) -> str:
    """Name of the device, e.g. ``"AMD EPYC, 2 cores"`` or ``"NVIDIA A10G"``."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = _entry(Path("/proc/cpuinfo"), "model name") or platform.processor() or platform.machine() or "unknown CPU"
    return f"{name}, 1 core" if (count := cores()) == 1 else f"{name}, {count} cores"


def clock_of(device: torch.device) -> Callable[[], float]:
    """A clock of seconds, read as soon as the device has done all that it was given so far."""
    if device.type != "cuda":
        return time.perf_counter

    def clock() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return clock


def cores() -> int:
    """Cores that the threads of this process may run on: a container often has fewer than the machine, and engines
    bind single threads, the calling one too, to a core of their own."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    found = os.sched_getaffinity(0)
    for thread in Path("/proc/self/task").glob("*"):
        with suppress(OSError):  # it has ended
            found |= os.sched_getaffinity(int(thread.name))
    return len(found)


def _entry(file: Path, name: str) -> str | None:
    """What a file of the kernel says after ``name``, the first time that a line begins with it."""
    lines = file.read_text(errors="replace").splitlines() if file.exists() else []
    return next((line.removeprefix(name).strip(" \t:") for line in lines if line.startswith(name)), None)


def free_memory(device: torch.device | str) -> int | None:
    """Bytes that new tensors on the device may take; ``None`` where it does not say.

    Of a GPU what this process has reserved without using it counts as free; of a machine, what a container's limit
    leaves.
    """
    try:
        device = torch.device(device)
        if device.type == "cuda":
            unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
            return int(torch.cuda.mem_get_info(device)[0]) + unused
        if device.type == "cpu":
            found = [_meminfo("MemAvailable"), _left_to_container()]
            return min((size for size in found if size is not None), default=None)
    except (OSError, RuntimeError, ValueError, AssertionError):  # the last where torch has no CUDA
        pass
    return None


def total_memory(device: torch.device | str) -> int | None:
    """Bytes that the device has in all, or of a machine what a container's limit allows; ``None`` if unknown."""
    device = torch.device(device)
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _container_limit()]
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return None
    return min(size for size in found if size is not None)


def _meminfo(name: str, file: Path = Path("/proc/meminfo")) -> int | None:
    found = _entry(file, f"{name}:")
    return None if found is None else 1024 * int(found.split()[0])


def _container_limit(folder: Path = CONTROL_GROUP) -> int | None:
    limit = _entry(folder / "memory.max", "")
    return None if limit in (None, "max") else int(limit)


def _left_to_container(folder: Path = CONTROL_GROUP) -> int | None:
    """What the limit of the control group leaves; the files that it caches count as free."""
    limit = _container_limit(folder)
    if limit is None:
        return None
    cached = int(_entry(folder / "memory.stat", "inactive_file ") or 0)
    return max(limit - int((folder / "memory.current").read_text()) + cached, 0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch, on a GPU or a CPU, ONNX Runtime, the system or Python ran out of memory."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    # Both say so in an error of a general class only: torch on a CPU, and ONNX Runtime.
    return any(said in str(error) for said in ("can't allocate memory", "Failed to allocate memory"))


@contextmanager
def set_aside() -> Iterator[None]:
    """Have Python's collector pass over what there is by now, but for :func:`free_unused`: to look through modules and
    models takes it some 0.2 s, in which every thread waits, whatever is timed there."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def free_unused() -> None:
    """Give back memory that nobody refers to: parts of a pool refer to each other, so they wait for the collector."""
    aside = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()
    if aside:
        gc.freeze()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def few_arenas() -> None:
    """Have the C library keep free memory in few places; to be called before there are threads. By default there are
    eight for each core, and what is free in one of them is not there for the threads of the others."""
    if "MALLOC_ARENA_MAX" not in os.environ and hasattr(library := _c_library(), "mallopt"):
        library.mallopt(_M_ARENA_MAX, ARENAS)


class Trimming:
    """Gives free memory of the C library back to the system when called, but no more often than every
    :data:`TRIM_SECONDS`: texts, charts and answers of many visitors leave it between what stays."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self) -> None:
        if time.monotonic() - self._last >= TRIM_SECONDS and hasattr(library := _c_library(), "malloc_trim"):
            library.malloc_trim(0)
            self._last = time.monotonic()


def _c_library() -> Any:
    """The C library, where it may be glibc; others lack the functions above."""
    return ctypes.CDLL(None) if sys.platform == "linux" else None


def format_bytes(size: int) -> str:
    """Bytes as GiB, small ones as MiB or KiB."""
    for unit, name in ((GIB, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1024:.0f} KiB"


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the CPU on ``device``: to a GPU from memory that it reads by itself, so that nobody waits for it."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def usable_device(device: str, pool: str) -> str:
    """The device that a card means: of ``auto`` the GPU if there is one. Raises PoolError if it cannot be used."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except Exception as error:  # torch raises three kinds: unknown name, no such number, not built in
        raise PoolError(
            f"device {device!r} of pool {pool!r} cannot be used: {first_line(error)}; "
            "write device: auto or cpu in its card"
        ) from error
    return device
