"""Training by several processes at once, one for each GPU: what they have to agree on.

``accelerate launch`` and ``torchrun`` start the processes and say by environment variables which of them each is; here
they meet. All hold the same weights; each takes its share of the answers and of the batches, and gradients are
averaged. A process alone needs neither launcher nor library.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed, nn

PATIENCE = timedelta(hours=12)
"""How long a process waits for the others: one may have a long share of answers left."""


@dataclass(frozen=True)
class Processes:
    """Which of how many processes this is; ``rank`` 0 is the first, which writes and speaks."""

    rank: int = 0
    count: int = 1
    device: str = "cpu"

    @classmethod
    def join(cls, device: str) -> Processes:
        """Meet the other processes, where a launcher has started several.

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
            distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=PATIENCE)
        return cls(distributed.get_rank(), distributed.get_world_size(), device)

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def leave(self) -> None:
        """Part from the others; what one does thereafter none waits for."""
        if self.count > 1:
            distributed.destroy_process_group()

    def wait(self) -> None:
        """Until all have come so far."""
        if self.count > 1:
            distributed.barrier()

    def agree(self, seconds: float, tokens: int) -> tuple[float, int]:
        """The first one's ``seconds``, and the ``tokens`` of all together: by them all end at the same step."""
        if self.count == 1:
            return seconds, tokens
        both = torch.tensor([seconds if self.first else 0.0, tokens], dtype=torch.float64, device=self.device)
        distributed.all_reduce(both)
        return float(both[0]), int(both[1])

    def average_gradients(self, model: nn.Module) -> None:
        """Make every gradient the mean of those of all processes."""
        if self.count == 1:
            return
        waiting = []
        for parameter in (p for p in model.parameters() if p.requires_grad):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad /= self.count
            waiting.append(distributed.all_reduce(parameter.grad, async_op=True))
        for work in waiting:
            work.wait()


ALONE = Processes()
