"""What a forward over a whole prompt holds at its largest, measured tensor by tensor, and what the estimate says."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, DynamicCache

from drafters.checkpoints.model_sizes import cache_numbers, prefill_bytes

TOKENS = 512


class Peak(TorchDispatchMode):
    """Bytes of the tensors that operations have made and that are still held: now, and at most."""

    def __init__(self):
        super().__init__()
        self.live, self.peak, self.seen = 0, 0, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        for item in tree_flatten(output)[0]:
            if isinstance(item, torch.Tensor):
                self._count(item.untyped_storage())
        return output

    def _count(self, storage):
        if (place := storage._cdata) in self.seen:
            return
        self.seen.add(place)
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._gone, place, storage.nbytes())

    def _gone(self, place, size):
        self.seen.discard(place)
        self.live -= size


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("all_states", [False, True])
def test_the_prefill_takes_a_little_less_than_the_estimate(kind, all_states):
    config = CONFIG_MAPPING[kind](
        vocab_size=300,
        hidden_size=256,
        intermediate_size=1280,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=TOKENS,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    ids, cache = torch.zeros(1, TOKENS, dtype=torch.long), DynamicCache()
    with torch.inference_mode(), Peak() as held:
        model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1, output_hidden_states=all_states)
    said = prefill_bytes(model, TOKENS, 2, all_states) + 2 * TOKENS * cache_numbers(config)
    assert held.peak < said < 1.3 * held.peak
