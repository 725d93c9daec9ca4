"""Quantised models on a CPU: the output is the quantised target's own, whoever drafts."""

import pytest
import torch
import yaml

from drafters.pool import load_pool
from multidraft import PoolError, generate
from multidraft.sampling import SamplingParams
from tests import tiny

PROMPTS = tiny.texts(4)


def quantised(folder, target=None, drafter=None):
    path = tiny.write_pool(folder)
    card = yaml.safe_load(path.read_text())
    if target:
        card["target"]["quantization"] = target
    if drafter:
        card["drafters"][0]["quantization"] = drafter
    path.write_text(yaml.safe_dump(card))
    return path


@pytest.fixture(scope="module", params=["nf4", "int8"])
def pool(request, tmp_path_factory):
    return load_pool(quantised(tmp_path_factory.mktemp(request.param), request.param, request.param), device="cpu")


@pytest.mark.parametrize("policy", ["fixed:near", "fixed:alone", "fixed:lookup", "normal-hedge", "draft-all"])
def test_greedy_output_is_that_of_the_quantised_target(pool, policy):
    for prompt in PROMPTS:
        ids = torch.tensor([pool.encode(prompt)])
        expected = pool.target.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False, pad_token_id=0
        )
        expected = expected[0, ids.shape[1] :].tolist()
        out = generate(pool, prompt, policy, SamplingParams(24, draft_length=5))
        assert out.token_ids == expected


def test_weights_are_smaller_and_the_history_tells(pool, tmp_path):
    plain = load_pool(tiny.write_pool(tmp_path), device="cpu")
    kind = "nf4" if "nf4" in pool.dtype else "int8"
    assert pool.dtype == f"float32, {kind} weights" and plain.dtype == "float32"
    assert pool.card_hash != plain.card_hash
    size, usual = (p.target.model.model.layers.state_dict() for p in (pool, plain))
    name = "0.mlp.up_proj.weight"
    assert size[name].nbytes * {"nf4": 8, "int8": 4}[kind] == usual[name].nbytes
    assert len(pool.drafters) == len(plain.drafters)


def test_it_says_when_the_library_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("drafters.loading.is_bitsandbytes_available", lambda: False)
    with pytest.raises(PoolError, match=r"cannot load the target .*quantization needs bitsandbytes"):
        load_pool(quantised(tmp_path, "nf4"), device="cpu")


def test_only_models_are_quantised(tmp_path):
    path = quantised(tmp_path, "fp3")
    with pytest.raises(PoolError, match=r"target\.quantization: Input should be 'nf4' or 'int8'"):
        load_pool(path)
    card = yaml.safe_load(path.read_text())
    card["target"].pop("quantization")
    next(d for d in card["drafters"] if d["kind"] == "pld")["quantization"] = "nf4"
    path.write_text(yaml.safe_dump(card))
    with pytest.raises(PoolError, match="quantization is for drafters of kind lm, not pld"):
        load_pool(path)
