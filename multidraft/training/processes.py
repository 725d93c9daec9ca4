"""Training by several processes at once, one per GPU.

``accelerate launch`` and ``torchrun`` start the processes and give each its rank in environment variables. All hold the
same weights; each takes its share of the answers and of the batches, and ``DistributedDataParallel`` averages the
gradients. A single process needs no launcher.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

TIMEOUT = timedelta(hours=12)
"""How long a process waits for the others: one may have many answers left to generate."""


@dataclass(frozen=True)
class Processes:
    """This process's rank among ``count``; rank 0, the first, writes files and prints."""

    rank: int = 0
    count: int = 1
    device: str = "cpu"

    @classmethod
    def join(cls, device: str) -> Processes:
        """Join the process group, if a launcher has started several processes.

        Args:
            device: ``cpu`` or ``cuda``; of several GPUs each process takes its own.
        """
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls(device=device)
        if device == "cuda":
            device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
            torch.cuda.set_device(device)
        if not distributed.is_initialized():
            distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=TIMEOUT)
        return cls(distributed.get_rank(), distributed.get_world_size(), device)

    @property
    def first(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def say(self, line: str) -> None:
        """Print, unless another process does."""
        if self.first:
            print(line, flush=True)

    def leave(self) -> None:
        """Leave the process group; the others no longer wait for this one."""
        if self.count > 1:
            distributed.destroy_process_group()

    def wait(self) -> None:
        """Wait until all processes get here."""
        if self.count > 1:
            distributed.barrier()

    def agree(self, seconds: float, tokens: int) -> tuple[float, int]:
        """The first process's ``seconds`` and the sum of all ``tokens``, so that all stop at the same step."""
        if self.count == 1:
            return seconds, tokens
        both = torch.tensor([seconds if self.first else 0.0, tokens], dtype=torch.float64, device=self.device)
        distributed.all_reduce(both)
        return float(both[0]), int(both[1])

    def share(self, module: nn.Module) -> nn.Module:
        """``module`` with its gradients averaged over all processes in each backward pass."""
        return DistributedDataParallel(module, broadcast_buffers=False) if self.count > 1 else module


ALONE = Processes()
