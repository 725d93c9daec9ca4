"""What a measurement ran on, in words: stored with every run so that unlike machines are not compared."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

GIB = 1 << 30


def describe(device: torch.device | str) -> str:
    """Name of the device, e.g. ``"AMD EPYC, 2 cores"`` or ``"NVIDIA A10G"``."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_cpu_name()}, {_cores()} cores"


def _cores() -> int:
    """Cores this process may use (a container often has fewer than the machine)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


CONTROL_GROUP = Path("/sys/fs/cgroup")
"""Of the container that this runs in, if it does."""


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "unknown CPU"


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
    for line in file.read_text().splitlines() if file.exists() else []:
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    return None


def _container_limit(folder: Path = CONTROL_GROUP) -> int | None:
    file = folder / "memory.max"
    limit = file.read_text().strip() if file.exists() else "max"
    return None if limit == "max" else int(limit)


def _left_to_container(folder: Path = CONTROL_GROUP) -> int | None:
    """What the limit of the control group leaves; the files that it caches count as free."""
    limit = _container_limit(folder)
    if limit is None:
        return None
    lines = (folder / "memory.stat").read_text().splitlines()
    cached = next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
    return max(limit - int((folder / "memory.current").read_text()) + cached, 0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch, on a GPU or a CPU, or Python ran out of memory."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def format_bytes(size: int) -> str:
    """Bytes as GiB, small ones as MiB or KiB."""
    for unit, name in ((GIB, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1024:.0f} KiB"
