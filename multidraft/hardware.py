"""What a measurement ran on, in words: stored with every run so that unlike machines are not compared."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch


def describe(device: torch.device | str) -> str:
    """Name of the device, e.g. ``"AMD EPYC, 2 cores"`` or ``"NVIDIA A10G"``."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_cpu_name()}, {_cores()} cores"


def _cores() -> int:
    """Cores this process may use (a container often has fewer than the machine)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "unknown CPU"
