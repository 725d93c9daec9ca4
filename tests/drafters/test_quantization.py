"""Quantised models on a CPU: the output is the quantised target's own, whoever drafts."""

from contextlib import contextmanager
from copy import deepcopy

import pytest
import torch
import yaml

from drafters.checkpoints.loading import load_model
from drafters.pool import load_pool
from drafters.source import Source
from multidraft import PoolError
from tests import tiny
from tests.engine_cases import check_greedy

PROMPTS = tiny.texts(2)


def quantised(folder, target=None, drafter=None):
    path = tiny.write_pool(folder)
    card = yaml.safe_load(path.read_text())
    if target:
        card["target"]["quantization"] = target
    if drafter:
        card["drafters"][0]["quantization"] = drafter
    path.write_text(yaml.safe_dump(card))
    return path


def _kernel(activations, packed, out=None, state=None):
    """What the library's AVX-512-BF16 kernel computes with rearranged weights, on any CPU."""
    nf4 = pytest.importorskip("bitsandbytes.functional")
    order = deepcopy(state)
    stored, order = nf4._convert_weight_packed_for_cpu_inverse(packed.data, order)
    order.absmax, order.dtype = state.absmax.T.float().reshape(-1), torch.bfloat16
    weight = nf4.dequantize_4bit(stored.reshape(-1, 1), order)
    return torch.nn.functional.linear(activations.to(torch.bfloat16), weight).to(activations.dtype)


@contextmanager
def avx512bf16(there: bool = True):
    """Let bitsandbytes find that the CPU has AVX-512-BF16 or has not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: there)
        patch.setattr("bitsandbytes.functional.gemv_4bit", _kernel)
        yield


@pytest.fixture(scope="module", params=["nf4", "int8", "nf4 with AVX-512-BF16"])
def pool(request, tmp_path_factory):
    kind = request.param.split()[0]
    with avx512bf16("AVX" in request.param):
        yield tiny.load(quantised(tmp_path_factory.mktemp(kind), kind, kind), device="cpu")


@pytest.mark.parametrize("policy", ["fixed:near", "fixed:alone", "fixed:lookup", "normal-hedge", "draft-all"])
def test_greedy_output_is_that_of_the_quantised_target(pool, policy, caplog):
    check_greedy(pool, PROMPTS, policy, 24, (5,))
    assert not caplog.records, "nothing is said of every product"


def test_weights_are_smaller_and_the_history_tells(pool, tmp_path):
    plain = load_pool(tiny.write_pool(tmp_path), device="cpu")
    kind = "nf4" if "nf4" in pool.dtype else "int8"
    assert pool.dtype == f"float32, {kind} weights, {kind} drafters" and plain.dtype == "float32"
    assert pool.card_hash != plain.card_hash
    size, usual = (p.target.model.model.layers.state_dict() for p in (pool, plain))
    name = "0.mlp.up_proj.weight"
    assert size[name].nbytes * {"nf4": 8, "int8": 4}[kind] == usual[name].nbytes
    assert len(pool.drafters) == len(plain.drafters)


def load_nf4(folder, dtype):
    """A model whose layers have ``hidden``, ``hidden / 2`` or ``2 * hidden`` features."""
    return load_model(Source(path=str(folder), quantization="nf4"), folder / "card.yaml", dtype, "cpu", "it")


def logits(model):
    with torch.inference_mode():
        return model(input_ids=torch.arange(10)[None] + 1).logits.float()


def rearranged(model):
    """Names of the first layer's matrices that are no longer in the order of storage."""
    layers = [(name, module) for name, module in model.model.layers[0].named_modules() if hasattr(module, "weight")]
    states = {name: getattr(module.weight, "quant_state", None) for name, module in layers}
    assert sum(state is not None for state in states.values()) == 7, "all of them are quantised"
    return {name.split(".")[1] for name, state in states.items() if getattr(state, "packing_format_for_cpu", False)}


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        (24, ""),  # blocks of 64 run over the ends of rows
        (32, "down_proj"),
        (64, "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"),
        (80, ""),
        (96, "down_proj"),
    ],
)
def test_with_avx512_bf16_only_weights_of_fitting_shapes_are_rearranged(hidden, expected, tmp_path):
    tiny.llama(hidden=hidden, head_dim=hidden // 4).save_pretrained(tmp_path)
    with avx512bf16(False):
        usual = load_nf4(tmp_path, torch.bfloat16)
    assert not rearranged(usual)
    with avx512bf16():
        model = load_nf4(tmp_path, torch.bfloat16)
        assert rearranged(model) == set(expected.split())
        torch.testing.assert_close(logits(model), logits(usual), atol=0.5, rtol=0.1)


def test_a_model_in_float32_computes_in_float32_with_avx512_bf16_too(tmp_path):
    tiny.llama(hidden=64).save_pretrained(tmp_path)
    with avx512bf16():
        model = load_nf4(tmp_path, torch.float32)
        assert not rearranged(model)


def test_a_failing_kernel_is_named_rather_than_the_files(tmp_path, monkeypatch):
    def fail(*arguments, **settings):
        raise AssertionError("N must be divisible by block_n")

    monkeypatch.setattr("bitsandbytes.matmul_4bit", fail)
    with pytest.raises(PoolError, match=r"cannot run the target.*block_n.*bitsandbytes \d.*lack a kernel.*on cpu"):
        load_pool(quantised(tmp_path, "nf4"), device="cpu")


def test_it_says_when_the_library_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("drafters.checkpoints.loading.is_bitsandbytes_available", lambda: False)
    with pytest.raises(PoolError, match=r"cannot load the target .*quantization needs bitsandbytes"):
        load_pool(quantised(tmp_path, "nf4"), device="cpu")


def test_only_models_are_quantised(tmp_path):
    path = quantised(tmp_path, "fp3")
    with pytest.raises(PoolError, match=r"target\.quantization: input should be 'nf4' or 'int8', got 'fp3'"):
        load_pool(path)
    card = yaml.safe_load(path.read_text())
    card["target"].pop("quantization")
    next(d for d in card["drafters"] if d["kind"] == "pld")["quantization"] = "nf4"
    path.write_text(yaml.safe_dump(card))
    with pytest.raises(PoolError, match="quantization is for drafters of kind eagle or lm, not pld"):
        load_pool(path)
