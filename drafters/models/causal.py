"""A causal LM as a forward with a cache that can take tokens back."""

from __future__ import annotations

from typing import Protocol

import torch
from transformers import DynamicCache, PreTrainedModel

from drafters.models.llama import LlamaStack


class CausalModel(Protocol):
    """Logits of one model with a cache: feeding at ``start`` forgets what was cached from there on."""

    window: int
    parameter_count: int

    def __call__(self, ids: list[int], start: int, last: int) -> torch.Tensor: ...


class StackMember:
    """One model of a stack."""

    def __init__(self, stack: LlamaStack, index: int):
        self.stack, self.index = stack, index
        self.window, self.parameter_count = stack.window, stack.parameter_count

    def __call__(self, ids: list[int], start: int, last: int) -> torch.Tensor:
        return self.stack.forward(torch.tensor(ids, device=self.stack.device), start, self.index, last=last)[0]


class HubModel:
    """Any causal LM of ``transformers`` with a key-value cache."""

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.parameter_count = model.num_parameters()
        config = model.config.get_text_config()
        self.window = int(getattr(config, "max_position_embeddings", None) or 1 << 30)
        self.last_id = int(config.vocab_size) - 1
        self.cache, self.length = DynamicCache(), 0

    @torch.inference_mode()
    def __call__(self, ids: list[int], start: int, last: int) -> torch.Tensor:
        if start == 0:
            self.cache = DynamicCache()
        elif start < self.length:
            self.cache.crop(start - self.length)
        # Tokens of the target that a smaller vocabulary lacks stand as its last one.
        tokens = torch.tensor([ids], device=self.model.device).clamp_(max=self.last_id)
        output = self.model(
            input_ids=tokens,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=last,
        )
        self.length = start + len(ids)
        return output.logits[0]
