"""EAGLE-3 heads: their training for any target, and their files in EAGLE-3's own layout.

A head learns the target's distribution of the next token at each step of the training-time test
(:mod:`drafters.models.trainable_head`).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional
from transformers import PreTrainedModel

from drafters.learning.distil import Encoded, read_out
from drafters.models.trainable_head import TrainableHead, drawn_steps, loss_of_steps
from multidraft.training.data import FeatureBatch
from multidraft.training.loop import Budget, autocast, train
from multidraft.training.processes import ALONE, Processes
from multidraft.training.work import write_file, write_text


def save_head(head: TrainableHead, folder: Path) -> None:
    """Write a head in EAGLE-3's layout (half precision; the embedding is the target's)."""
    weights, ids = head.state_dict(), head.ids.cpu()
    del weights["ids"]
    tensors = {name: tensor.to("cpu", torch.bfloat16).contiguous() for name, tensor in weights.items()}
    tensors |= {"d2t": ids - torch.arange(len(ids)), "t2d": torch.isin(torch.arange(head.config.vocab_size), ids)}
    write_file(folder / "model.safetensors", lambda part: save_file(tensors, part, metadata={"format": "pt"}))
    rope = (head.config.rope_parameters or {}).get("rope_theta", 10_000.0)
    names = "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim"
    names += " vocab_size max_position_embeddings rms_norm_eps hidden_act"
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        **{name: getattr(head.config, name) for name in names.split()},
        **{"rope_theta": rope, "draft_vocab_size": len(ids), "tie_word_embeddings": False},
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(head.layers)},
    }
    write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")


def common_tokens(texts: Sequence[Encoded], count: int, always: Sequence[int]) -> torch.Tensor:
    """Ids of the ``count`` most frequent answer tokens, those of ``always`` among them; ascending int64."""
    counts = Counter(token for text in texts for token in text.ids[text.prompt_length :])
    ranked = [*always, *(token for token, _ in counts.most_common() if token not in always)]
    return torch.tensor(sorted(ranked[:count]))


def fit_head(
    head: TrainableHead,
    target: PreTrainedModel,
    batches: Iterator[FeatureBatch],
    budget: Budget,
    lr: float,
    processes: Processes = ALONE,
) -> None:
    """Train ``head`` on endless ``batches`` until the budget is spent; see :func:`~multidraft.training.loop.train`."""
    device, dtype = str(target.device), next(head.parameters()).dtype
    embedding = target.get_input_embeddings().weight
    output = target.get_output_embeddings().weight
    rng = random.Random(processes.rank)

    def loss_of(batch: FeatureBatch) -> tuple[torch.Tensor, int]:
        batch = batch.to(device)
        with autocast(device):
            with torch.no_grad():
                goal = read_out(target, batch.last.to(output.dtype))[:, head.ids].float().softmax(dim=-1)
                embedded = functional.embedding(batch.ids[:, 1:], embedding).to(dtype)
            logits = head(batch.features.to(dtype), embedded, batch.wanted, drawn_steps(rng))
            loss = loss_of_steps(functional.cross_entropy(of_step.float(), goal) for of_step in logits)
        return loss, batch.ids.numel()

    train(head, batches, loss_of, budget, lr, processes=processes)
