"""Medusa heads as vLLM has them converted: read as what Medusa's own folder of the same heads holds."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from drafters.checkpoints.medusa import MEDUSA_FILES
from drafters.checkpoints.tensor_files import stored_numbers
from drafters.errors import PoolError
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from multidraft import generate
from tests import tiny
from tests.medusa import HEADS, HIDDEN, load_heads, medusa_tensors

IDS = [9, 2, 5, 11, 4, 3]
"""Of the twelve tokens of the tiny target those of a map, as they are listed: by how frequent they are."""
VARIANTS = {
    "plain": {},
    "two layers with biases": {"layers": 2, "bias": True},
    "with a prefix": {"prefix": "medusa_heads."},
    "one output layer": {"shared": "lm_heads.0.weight"},
    "one output layer under its own name": {"shared": "lm_head.weight"},
    "some tokens": {"mapped": True},
    "some tokens, whole output layers": {"mapped": True, "whole": True, "bias": True},
    "some tokens, one whole output layer": {"mapped": True, "whole": True, "shared": "lm_heads.0.weight"},
}


def write(folder, *, layers=1, bias=False, prefix="", shared="", mapped=False, whole=False, change=None, **config):
    """A folder in vLLM's layout, and the tensors that are in it."""
    own, tensors = medusa_tensors(layers), {}
    for head in range(HEADS):
        for layer in range(layers):
            tensors[f"blocks.{head}.layers.{layer}.weight"] = own[f"{head}.{layer}.linear.weight"]
            if bias:
                tensors[f"blocks.{head}.layers.{layer}.bias"] = own[f"{head}.{layer}.linear.bias"]
        rows = own[f"{head}.{layers}.weight"]
        tensors[f"lm_heads.{head}.weight"] = rows[IDS] if mapped and not whole else rows
    if shared:
        first, *_ = (tensors.pop(f"lm_heads.{head}.weight") for head in range(HEADS))
        tensors = {f"lm_heads.{head}.weight": torch.zeros(1) for head in (1,)} | {**tensors, shared: first}
    if mapped:
        tensors["token_map"] = torch.tensor(IDS)
    config = {"num_heads": HEADS, "num_hidden_layers": layers, "medusa_fc_bias": bias, **config}
    config |= {"model_type": "medusa", "architectures": ["MedusaModel"], "hidden_size": HIDDEN}
    config |= {"vocab_size": tiny.VOCAB, "truncated_vocab_size": len(IDS) if mapped else tiny.VOCAB}
    config |= {"original_lm_head": bool(shared)}
    (change or (lambda _: None))(tensors)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({prefix + name: tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder, tensors


def plain(tensors, hidden, head, layers, shared):
    """Logits of the tokens that are there, as vLLM computes them."""
    for layer in range(layers):
        part = f"blocks.{head}.layers.{layer}"
        hidden = hidden + functional.silu(hidden @ tensors[f"{part}.weight"].T + tensors.get(f"{part}.bias", 0.0))
    logits = hidden @ tensors[shared or f"lm_heads.{head}.weight"].T
    ids = tensors.get("token_map")
    return logits if ids is None or len(ids) == logits.shape[-1] else logits[:, ids]


@pytest.fixture(scope="module")
def model():
    return tiny.llama(1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_vllm(tmp_path, model, variant):
    settings = VARIANTS[variant]
    folder, tensors = write(tmp_path, **settings)
    heads, hidden = load_heads("medusa", folder, model), torch.randn(5, HIDDEN)
    layers, shared = settings.get("layers", 1), settings.get("shared", "")
    expected = torch.stack([plain(tensors, hidden, head, layers, shared) for head in range(HEADS)])
    assert heads.count == HEADS and heads.outputs == expected.shape[-1]
    assert heads.to_target is None or heads.to_target.tolist() == IDS
    for count in (1, 2, HEADS, HEADS + 2):
        torch.testing.assert_close(heads.logits(hidden, count), expected[:count], rtol=1e-4, atol=1e-4)
    held = heads.outputs * HIDDEN * (1 if shared else HEADS)
    assert heads.parameter_count == held + HEADS * layers * HIDDEN * (HIDDEN + settings.get("bias", False))


def bad_ids(*ids):
    return lambda tensors: tensors.update(token_map=torch.tensor(ids))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"change": lambda t: t.pop("blocks.1.layers.0.weight")}, r"lacks the tensor 1\.0\.linear\.weight of shape"),
        ({"change": lambda t: t.pop("lm_heads.2.weight")}, r"lacks the tensor 2\.1\.weight of shape \[12, 24\]"),
        ({"bias": True, "medusa_fc_bias": False}, r"holds the tensor 0\.0\.linear\.bias of shape \[24\], which"),
        ({"logit_scale": 0.5}, r"config\.json: logit_scale is 0\.5; Medusa heads with it"),
        ({"mapped": True, "change": lambda t: t.pop("token_map")}, r"lacks the tensor token_map of shape \[6\]"),
        ({"mapped": True, "change": bad_ids(9, 2)}, r"tensor token_map has the shape \[2\], but \[6\] is expected"),
        (
            {"mapped": True, "change": bad_ids(9, 2, 5, 12, 4, 3)},
            "token_map leads to token ids 2 to 12, but the target",
        ),
        (
            {"mapped": True, "change": bad_ids(9, 2, 5, 5, 4, 3)},
            "token_map leads from several tokens of the head to one",
        ),
    ],
)
def test_what_does_not_fit(tmp_path, model, settings, message):
    folder, _ = write(tmp_path, **settings)
    with pytest.raises(PoolError, match=message):
        load_heads("medusa", folder, model)


@pytest.mark.parametrize("shared", ["", "lm_head.weight"])
def test_heads_of_some_tokens_in_a_pool(tmp_path, shared):
    entry = {"kind": "medusa", "path": "heads"}
    drafters = [{"name": "chain", **entry}, {"name": "tree", "nodes": 8, "branches": 8, **entry}]
    card = tiny.write_pool(tmp_path, drafters=drafters)
    folder, tensors = write(tmp_path / "heads", mapped=True, shared=shared)
    assert stored_numbers(folder, MEDUSA_FILES) == sum(tensor.numel() for tensor in tensors.values())
    pool = load_pool(card)
    prompt, params = tiny.prompts(1, seed=5, shortest=8)[0], SamplingParams(16, draft_length=3)
    texts = [generate(pool, prompt, policy, params, 0) for policy in ("autoregressive", "fixed:chain", "fixed:tree")]
    assert len({tuple(text.token_ids) for text in texts}) == 1
    hidden = tiny.states_of(pool.target.model, prompt, (2,))[-2:-1]
    best = [IDS[int(plain(tensors, hidden, head, 1, shared).argmax())] for head in range(HEADS)]
    chain, tree = pool.drafters
    assert chain.propose(prompt, 3, params, torch.Generator()).tokens == tuple(best)
    assert set(tree.propose(prompt, 3, params, torch.Generator()).tokens) <= set(IDS)
    assert [drafter.outputs for drafter in pool.drafters] == [6, 6]
