"""How an EAGLE-3 head learns from batches of features, whatever its target and wherever they come from."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from drafters.training.answers import read_out
from drafters.training.feature_batches import FeatureBatch
from drafters.training.loop import Budget, autocast, train
from drafters.training.processes import ALONE, Processes

if TYPE_CHECKING:
    from drafters.training.eagle import TrainableHead

STEPS = 5
STEP_WEIGHT = 0.7
"""What a step's loss counts, compared with the step's before: later steps matter only where the earlier were right. It
is the chance that a batch takes the step at all, which has the same mean and costs half of taking all of them."""


def fit_head(
    head: TrainableHead,
    target: PreTrainedModel,
    batches: Iterator[FeatureBatch],
    budget: Budget,
    lr: float,
    log: Callable[[str], None] = print,
    processes: Processes = ALONE,
    seed: int = 0,
) -> None:
    """Train ``head`` on endless ``batches`` until the budget is spent; see :func:`~drafters.training.loop.train`."""
    device, dtype = str(target.device), next(head.parameters()).dtype
    embedding = target.get_input_embeddings().weight
    output = target.get_output_embeddings().weight
    rng = random.Random(seed)

    def loss_of(batch: FeatureBatch) -> tuple[torch.Tensor, int]:
        steps = 1
        while steps < STEPS and rng.random() < STEP_WEIGHT:
            steps += 1
        batch = batch.to(device)
        with autocast(device):
            with torch.no_grad():
                goal = read_out(target, batch.last.to(output.dtype))[:, head.ids].float().softmax(dim=-1)
                embedded = functional.embedding(batch.ids[:, 1:], embedding).to(dtype)
            logits = head(batch.features.to(dtype), embedded, batch.wanted, steps)
            loss = torch.stack([functional.cross_entropy(of_step.float(), goal) for of_step in logits]).sum()
        return loss / sum(STEP_WEIGHT**step for step in range(STEPS)), batch.ids.numel()

    train(head, batches, loss_of, budget, lr, log=log, processes=processes)
