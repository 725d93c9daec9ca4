"""Targets that tell a token's place by its slot in the cache verify chains only, and stay lossless."""

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from drafters.draft import Draft
from drafters.kinds.lookahead import LookaheadDrafter
from drafters.kinds.suffix import SuffixDrafter
from drafters.models.target import Target
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from tests import tiny
from tests.engine_cases import pool_of

SIZES = {"vocab_size": tiny.VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
ENDS = {"bos_token_id": None, "eos_token_id": tiny.END, "pad_token_id": None}
KINDS = {
    "bloom": {"vocab_size": tiny.VOCAB, "hidden_size": 24, "n_layer": 2, "n_head": 4},
    "falcon": {**SIZES, "alibi": True, "new_decoder_architecture": False},
    "mpt": {"vocab_size": tiny.VOCAB, "d_model": 24, "n_layers": 2, "n_heads": 4, "max_seq_len": 64},
    "gpt_neo": {
        "vocab_size": tiny.VOCAB,
        "hidden_size": 24,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 6,
        "max_position_embeddings": 64,
    },
    "llama4_text": {
        **SIZES,
        "intermediate_size": 48,
        "intermediate_size_mlp": 48,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_local_experts": 2,
        "attention_chunk_size": 6,
        "max_position_embeddings": 64,
    },
}


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    config = CONFIG_MAPPING[request.param](**KINDS[request.param], **ENDS)
    return tiny.spread(AutoModelForCausalLM.from_config(config), 1)


def test_drafts_that_branch_are_cut_to_their_main_path(model):
    base = pool_of(model)
    assert not base.target.trees
    drafters = [SuffixDrafter("suffix", nodes=12), LookaheadDrafter("lookahead", 4, 3, 2)]
    pool = Pool(base.target, drafters, base.tokenizer, base.card)
    for prompt in tiny.prompts(4, seed=2, shortest=8, longest=14):
        expected = tiny.greedy(model, prompt, 24)
        for policy in ("fixed:suffix", "fixed:lookahead", "draft-all"):
            out = generate(pool, prompt, policy, SamplingParams(24, draft_length=5))
            assert out.token_ids == expected[: len(out.token_ids)] and len(out.token_ids) == len(expected), policy


def test_a_tree_is_refused(model):
    target = Target(model)
    target.prefill([1, 2, 3])
    with pytest.raises(ValueError, match="cannot score drafts that branch"):
        target.score(Draft((4, 5), (-1, -1)))


@pytest.mark.parametrize("kind", tiny.HUB_KINDS)
def test_all_others_verify_trees(kind):
    target = Target(tiny.causal_lm(kind, 1))
    assert target.trees and target.queries == 0 and target.context_length == 0


def test_a_mistral_that_names_the_kinds_of_its_layers():
    settings = {"intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 6}
    config = CONFIG_MAPPING["mistral"](**SIZES, **settings, **ENDS, max_position_embeddings=64)
    config.layer_types = ["sliding_attention"] * 2
    target = Target(tiny.spread(AutoModelForCausalLM.from_config(config), 1))
    assert target.trees
    context = tiny.prompts(1, seed=3, shortest=12, longest=12)[0]
    target.prefill(context)
    scores = target.score(Draft((4, 5, 6), (-1, -1, 1)))
    expected = [tiny.logits_of(target.model, [*context, *path])[-1] for path in ((), (4,), (5,), (5, 6))]
    torch.testing.assert_close(scores, torch.stack(expected), rtol=1e-4, atol=1e-4)
