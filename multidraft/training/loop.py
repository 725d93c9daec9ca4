"""The training loop that target and drafters share: a budget in minutes, checkpoints, resume, several processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from drafters.errors import TrainingError
from multidraft.training.processes import ALONE, Processes
from multidraft.training.work import write_file

LossOf = Callable[[Any], tuple[torch.Tensor, int]]
"""Maps a batch to its mean loss and the number of tokens trained on."""

WARMUP_SHARE = 0.02
COOLDOWN_SHARE = 0.35
CHECKPOINT_SECONDS = 240.0
LOG_SECONDS = 20.0


@dataclass(frozen=True)
class Budget:
    """How long to train, and where to save checkpoints.

    Attributes:
        minutes: wall-clock training time; the learning rate follows the share of it that is spent, so
            that a run on any machine ends fully cooled down.
        tokens: alternative budget in trained tokens; whichever is reached first ends the run.
        checkpoint: file that is written every ``CHECKPOINT_SECONDS`` and resumed from where it exists.
    """

    minutes: float
    tokens: float = math.inf
    checkpoint: Path | None = None

    def progress(self, seconds: float, tokens: int) -> float:
        """Share of the budget spent, in [0, 1]."""
        return min(1.0, max(seconds / (60 * self.minutes), tokens / self.tokens))


def learning_rate_factor(progress: float) -> float:
    """Warm-up, constant, then linear cool-down to zero (a schedule that a resumed run can continue)."""
    warm = min(1.0, progress / WARMUP_SHARE)
    return max(0.0, warm * min(1.0, (1.0 - progress) / COOLDOWN_SHARE))


def half_precision_pays(device: str) -> bool:
    """Whether ``device`` multiplies in half precision: a CPU without AVX-512 only emulates it."""
    return not device.startswith("cpu") or "AVX512" in torch.backends.cpu.get_cpu_capability()


def autocast(device: str) -> torch.autocast:
    """Half precision for matrix products where it pays."""
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=half_precision_pays(device))


def make_optimizers(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices, AdamW for embeddings, output layers and norms.

    Muon orthogonalises in half precision; where that is emulated it takes several times as long as the step itself, and
    AdamW does all, as it does with a torch before 2.9, which has no Muon.
    """
    if not half_precision_pays(next(model.parameters()).device.type) or not hasattr(torch.optim, "Muon"):
        return [torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)]
    embeddings = {id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
    hidden, rest = list[nn.Parameter](), list[nn.Parameter]()
    for name, p in model.named_parameters():
        outer = p.ndim != 2 or "embed" in name or "lm_head" in name or id(p) in embeddings
        (rest if outer else hidden).append(p)
    return [
        torch.optim.Muon(hidden, lr=lr, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


class _Loss(nn.Module):
    """The loss of ``model`` as a module, which is what ``DistributedDataParallel`` wraps."""

    def __init__(self, model: nn.Module, loss_of: LossOf):
        super().__init__()
        self.model, self.loss_of = model, loss_of

    def forward(self, batch: Any) -> tuple[torch.Tensor, int]:
        """The loss of a batch, and its tokens."""
        return self.loss_of(batch)


def train(
    model: nn.Module,
    batches: Iterator[Any],
    loss_of: LossOf,
    budget: Budget,
    lr: float,
    accumulate: int = 1,
    processes: Processes = ALONE,
) -> None:
    """Train ``model`` until the budget is spent. An interruption (Ctrl-C) leaves a checkpoint behind.

    Args:
        batches: endless; a resumed run continues with fresh batches, so the source must be reseeded by the caller.
        loss_of: computes the loss with ``model``.
        accumulate: batches per step. Batches hold examples of one length, hence often of one task; a step over
            several of them sees the mixture.
        processes: those that train the same weights, each on batches of its own; the first writes the checkpoints.

    Raises:
        TrainingError: the loss is not finite, or a checkpoint cannot be written.
    """
    optimizers, shared_loss = make_optimizers(model, lr), processes.share(_Loss(model, loss_of))
    seconds, tokens, step = 0.0, 0, 0
    if budget.checkpoint and budget.checkpoint.exists():
        state = torch.load(budget.checkpoint, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        if len(state["optimizers"]) != len(optimizers):
            raise TrainingError(
                f"{budget.checkpoint} was written on a machine that trains with other optimizers (Muon or AdamW alone, "
                "see make_optimizers); resume it there, or remove the file to start again"
            )
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        seconds, tokens, step = state["seconds"], state["tokens"], state["step"]
        processes.say(f"resumed at step {step}, {seconds / 60:.1f} min, {tokens:,} tokens")

    def save() -> None:
        if budget.checkpoint and processes.first:
            state: dict[str, Any] = {"seconds": seconds, "tokens": tokens, "step": step}
            state |= {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers]}
            write_file(budget.checkpoint, lambda part: torch.save(state, part))

    model.train()
    saved_at, logged_at = seconds, -math.inf  # the first step is logged
    losses: list[float] = []
    try:
        while (progress := budget.progress(seconds, tokens)) < 1.0:
            started, trained = time.perf_counter(), 0
            for _ in range(accumulate):
                loss, count = shared_loss(next(batches))
                (loss / accumulate).backward()
                losses.append(loss.item())
                if not math.isfinite(losses[-1]):
                    raise TrainingError(f"the loss is {losses[-1]} at step {step}: lower the learning rate")
                trained += count
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = lr * learning_rate_factor(progress)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            step += 1
            spent, trained = processes.agree(time.perf_counter() - started, trained)
            seconds, tokens = seconds + spent, tokens + trained
            if seconds - logged_at >= LOG_SECONDS:
                done = f"{seconds / 60:6.1f} min  step {step:6d}  {tokens:11,} tokens"
                processes.say(f"{done}  loss {sum(losses) / len(losses):.4f}")
                logged_at, losses = seconds, []
            if seconds - saved_at >= CHECKPOINT_SECONDS:
                save()
                saved_at = seconds
    except KeyboardInterrupt:
        save()
        raise
    save()
    model.eval()
