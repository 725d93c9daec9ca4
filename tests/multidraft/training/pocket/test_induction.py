"""The copying circuit works before any training."""

import random

import pytest
import torch

from drafters.learning.distil import answer_logits, collate
from multidraft.training.plan import make_llama
from multidraft.training.pocket.data import echo
from multidraft.training.pocket.induction import plant_copying
from multidraft.training.pocket.models import TARGET_SHAPE


@pytest.fixture(scope="module")
def models(tokenizer):
    torch.manual_seed(0)
    plain = make_llama(tokenizer, num_key_value_heads=2, **TARGET_SHAPE).eval()
    planted = make_llama(tokenizer, num_key_value_heads=2, **TARGET_SHAPE).eval()
    plant_copying(planted)
    planted.set_attn_implementation("eager")
    return plain, planted


@torch.inference_mode()
def accuracy(model, batch):
    next_ids = batch.ids.roll(-1, dims=1)[batch.predicts_answer]
    return (answer_logits(model, batch).argmax(-1) == next_ids).float().mean().item()


def test_it_repeats_random_tokens_untrained(tokenizer, models):
    rng = random.Random(0)
    batch = collate([echo(tokenizer, rng) for _ in range(8)], tokenizer.pad_token_id)
    plain, planted = models
    assert accuracy(plain, batch) < 0.02
    assert accuracy(planted, batch) > 0.15


def test_its_heads_look_where_they_should(tokenizer, models):
    rng = random.Random(1)
    ids = rng.sample(range(10, 4000), 40)
    with torch.inference_mode():
        first, second, *_ = models[1](torch.tensor([ids + ids]), output_attentions=True).attentions
    previous = first[0, 0].diagonal(offset=-1)
    assert previous[5:].mean() > 0.8
    positions = torch.arange(42, 80)
    followed = second[0, 0, positions, positions - 39]  # the token after the earlier copy of this one
    assert followed.mean() > 0.4
