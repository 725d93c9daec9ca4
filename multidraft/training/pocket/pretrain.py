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
from multidraft.training.llama import make_llama
from multidraft.training.loop import Budget, train
from multidraft.training.pocket.data import (
    CONTEXT_WINDOW,
    FAMILY_WEIGHTS,
    Mixture,
    echo,
    encode_example,
    lookups,
    quotes,
    sums,
)
from multidraft.training.pocket.induction import plant_copying

TARGET_SHAPE = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 10, "num_attention_heads": 4}


def train_target(
    tokenizer: PreTrainedTokenizerFast,
    minutes: float,
    folder: Path,
    *,
    tokens: float = float("inf"),
    checkpoint: Path | None = None,
    gsm8k: Path | None = None,
    device: str = "cpu",
    tokens_per_batch: int = 2048,
    accumulate: int = 2,
    lr: float = 2e-3,
    echo_share: float = 0.05,
    sums_share: float = 0.15,
    lookups_share: float = 0.2,
    quotes_share: float = 0.06,
) -> LlamaForCausalLM:
    """Train the target within the budget and write it to ``folder`` (safetensors, bf16).

    Args:
        echo_share: share of the examples that only ask to repeat random tokens.
        sums_share: share of the examples that are bare sums (which are short: a twentieth of the tokens).
        lookups_share: share of the examples that ask for one or two facts of a short text.
        quotes_share: share of the examples that put names between quotes.
    """
    torch.manual_seed(0)
    model = make_llama(tokenizer, num_key_value_heads=2, **TARGET_SHAPE)
    plant_copying(model)
    model.to(device)
    # A resumed run draws new examples: the corpus has no end, so nothing is lost by not replaying it.
    mixture = Mixture(FAMILY_WEIGHTS, seed=time.time_ns() % 2**32, gsm8k=gsm8k)

    def sequences() -> Iterator[Encoded]:
        drills = {echo: echo_share, sums: sums_share, lookups: lookups_share, quotes: quotes_share}
        whole = 1.0 - sum(drills.values())
        while True:
            drill = mixture.rng.choices([None, *drills], [whole, *drills.values()])[0]
            yield drill(tokenizer, mixture.rng) if drill else encode_example(tokenizer, mixture.draw())

    loss_of = language_model_loss(model, tokenizer.pad_token_id, device)
    batches = bucket_batches(sequences(), tokens_per_batch, tokenizer.pad_token_id, random.Random(0), CONTEXT_WINDOW)
    train(model, batches, loss_of, Budget(minutes, tokens, checkpoint), lr, accumulate)
    save_model(model, folder, tokenizer)
    return model


def save_model(model: LlamaForCausalLM, folder: Path, tokenizer: PreTrainedTokenizerFast | None = None) -> None:
    """Write a model in the Hugging Face layout, in half precision, shards under 10 MB; a target with its tokenizer,
    which is its drafters' too."""
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="9MB")
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    model.to(torch.float32)
