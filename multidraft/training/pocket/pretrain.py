"""Train the pocket target: a small Llama on the corpus, loss on the answers only."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from multidraft.training.answers import language_model_loss
from multidraft.training.data import Encoded, bucket_batches
from multidraft.training.loop import Budget, train
from multidraft.training.plan import make_llama
from multidraft.training.pocket import data
from multidraft.training.pocket.induction import plant_copying

TARGET_SHAPE = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 10, "num_attention_heads": 4}
DRILLS = {data.sums: 0.15, data.lookups: 0.2, data.quotes: 0.06}
"""Exercises beside the corpus, with their shares of the examples. (Sums are short: a twentieth of the tokens.)"""


def train_target(
    tokenizer: PreTrainedTokenizerFast,
    budget: Budget,
    folder: Path,
    *,
    gsm8k: Path | None = None,
    device: str = "cpu",
    lr: float = 2e-3,
    echo_share: float = 0.05,
) -> None:
    """Train the target within the budget and write it to ``folder`` (safetensors, bf16).

    Args:
        gsm8k: a file of real text to mix in.
        echo_share: share of the examples that only ask to repeat random tokens.
    """
    torch.manual_seed(0)
    model = make_llama(tokenizer, num_key_value_heads=2, **TARGET_SHAPE)
    plant_copying(model)
    model.to(device)
    # A resumed run draws new examples: the corpus has no end, so nothing is lost by not replaying it.
    mixture = data.Mixture(data.FAMILY_WEIGHTS, seed=time.time_ns() % 2**32, gsm8k=gsm8k)

    def sequences() -> Iterator[Encoded]:
        drills = {data.echo: echo_share, **DRILLS}
        whole = 1.0 - sum(drills.values())
        while True:
            drill = mixture.rng.choices([None, *drills], [whole, *drills.values()])[0]
            yield drill(tokenizer, mixture.rng) if drill else data.encode_example(tokenizer, mixture.draw())

    pad = tokenizer.pad_token_id
    batches = bucket_batches(sequences(), 2048, pad, random.Random(0), data.CONTEXT_WINDOW)
    train(model, batches, language_model_loss(model, pad, device), budget, lr, accumulate=2)
    save_model(model, folder)
    tokenizer.save_pretrained(folder)


def save_model(model: LlamaForCausalLM, folder: Path) -> None:
    """Write a model in the Hugging Face layout, in half precision, shards under 10 MB."""
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="9MB")
    model.to(torch.float32)
