"""Checkpoints of Medusa and BPD heads as they are published, and what does not fit."""

import json

import pytest
import torch
from torch import nn

from drafters.checkpoints.medusa import save_medusa
from drafters.errors import PoolError
from tests import tiny
from tests.medusa import HEADS, HIDDEN, bpd_tensors, load_heads, medusa_tensors, plain_logits, write_bpd, write_medusa


def agrees(heads, tensors, model):
    """Logits are the plain ones, however many heads and positions are asked for."""
    hidden = torch.randn(5, HIDDEN, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([plain_logits(tensors, model, hidden, head) for head in range(HEADS)])
    assert heads.count == HEADS and heads.layer == 2
    assert heads.parameter_count == sum(tensor.numel() for tensor in tensors.values())
    for count in (1, 2, HEADS, HEADS + 2):
        torch.testing.assert_close(heads.logits(hidden, count), expected[:count], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(heads.logits(hidden[:1], count), expected[:count, :1], rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def model():
    return tiny.llama(1)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("prefix", ["", "medusa_head."])
@pytest.mark.parametrize("file", ["medusa_lm_head.pt", "medusa_lm_head.safetensors"])
def test_published_medusa_heads_are_read(model, tmp_path, file, prefix, layers):
    tensors = medusa_tensors(layers)
    agrees(load_heads("medusa", write_medusa(tmp_path, tensors, layers, file, prefix), model), tensors, model)


@pytest.mark.parametrize("bias", [False, True])
def test_bpd_heads_use_the_targets_output_layer(tmp_path, bias):
    model = tiny.llama(1)
    if bias:
        model.lm_head.bias = nn.Parameter(torch.arange(tiny.VOCAB) / 3.0)
    tensors = bpd_tensors()
    agrees(load_heads("bpd", write_bpd(tmp_path, tensors), model), tensors, model)


def test_what_is_saved_is_read_again(model, tmp_path):
    save_medusa(tmp_path / "medusa", medusa_tensors(2))
    agrees(load_heads("medusa", tmp_path / "medusa", model), medusa_tensors(2), model)
    config = json.loads((tmp_path / "medusa/config.json").read_text())
    assert config == {"base_model_name_or_path": "", "medusa_num_heads": HEADS, "medusa_num_layers": 2}


def test_heads_take_the_targets_dtype(model, tmp_path):
    half = tiny.llama(1).to(torch.bfloat16)
    heads = load_heads("medusa", write_medusa(tmp_path, medusa_tensors()), half)
    assert heads.logits(torch.zeros(1, HIDDEN, dtype=torch.bfloat16), 2).dtype == torch.bfloat16


def without(name):
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name}


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("medusa", without("1.0.linear.bias"), r"pt lacks the tensor 1\.0\.linear\.bias of shape \[24\]"),
        ("medusa", without("2.1.weight"), r"pt lacks the tensor 2\.1\.weight of shape \[12, 24\]"),
        ("medusa", lambda t: medusa_tensors(2), r"pt: tensor 0\.1\.weight|lacks the tensor 0\.1\.weight"),
        (
            "medusa",
            lambda t: medusa_tensors(vocab=13),
            r"pt: tensor 0\.1\.weight has the shape \[13, 24\], but \[12, 24\] is expected",
        ),
        (
            "medusa",
            lambda t: medusa_tensors(hidden=32),
            r"pt: tensor 0\.0\.linear\.weight has the shape \[32, 32\], but \[24, 24\] is expected",
        ),
        ("medusa", lambda t: {**t, "extra": torch.zeros(3, 2)}, r"pt holds the tensor extra of shape \[3, 2\], which"),
        ("medusa", lambda t: {"lm_head.weight": torch.zeros(2)}, "pt holds no Medusa heads"),
        ("bpd", without("2.down.weight"), r"safetensors lacks the tensor 2\.down\.weight of shape \[24, 20\]"),
        (
            "bpd",
            lambda t: {**t, "0.up.weight": torch.zeros(20, 32)},
            r"safetensors: tensor 0\.up\.weight has the shape \[20, 32\], but \[20, 24\] is expected",
        ),
        ("bpd", lambda t: {**t, "3.up.bias": torch.zeros(20)}, r"holds the tensor 3\.up\.bias of shape \[20\]"),
    ],
)
def test_tensors_that_do_not_fit(model, tmp_path, kind, change, message):
    if kind == "medusa":
        write_medusa(tmp_path, change(medusa_tensors()))
    else:
        write_bpd(tmp_path, change(bpd_tensors()))
    with pytest.raises(PoolError, match=message) as caught:
        load_heads(kind, tmp_path, model)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "file", "content", "message"),
    [
        ("medusa", "config.json", None, "cannot read .*config.json"),
        ("medusa", "config.json", b"{", "cannot read .*config.json"),
        ("medusa", "config.json", b"[]", "cannot read .*config.json: it is not a configuration"),
        (
            "medusa",
            "config.json",
            b'{"medusa_num_layers": "1"}',
            "medusa_num_layers must be a whole number .*, got '1'",
        ),
        ("medusa", "medusa_lm_head.pt", None, "holds no Medusa heads: it should have one of medusa_lm_head.saf"),
        ("medusa", "medusa_lm_head.pt", b"", "cannot read .*medusa_lm_head.pt"),
        ("medusa", "medusa_lm_head.pt", b"words", "cannot read .*medusa_lm_head.pt: it is not a file of tensors"),
        ("medusa", "medusa_lm_head.safetensors", b"words", "cannot read .*medusa_lm_head.safetensors"),
        ("bpd", "config.json", b'{"bpd_num_heads": 0}', "bpd_num_heads must be a whole number from 1 to 1,000, got 0"),
        ("bpd", "config.json", b'{"bpd_num_heads": 90000000}', "bpd_num_heads must be a whole number from 1 to 1,000"),
        (
            "medusa",
            "config.json",
            b'{"medusa_num_layers": 90000000}',
            "medusa_num_layers must be a whole number from 1",
        ),
        (
            "bpd",
            "config.json",
            b'{"bpd_num_heads": 3, "hidden_size": 32, "intermediate_size": 20}',
            "config.json: hidden_size is 32, but the target's is 24",
        ),
        ("bpd", "model.safetensors", None, "holds no BPD heads: it should have model.safetensors"),
        ("bpd", "model.safetensors", b"words", "cannot read .*model.safetensors"),
    ],
)
def test_files_that_cannot_be_used(model, tmp_path, kind, file, content, message):
    write_medusa(tmp_path, medusa_tensors()) if kind == "medusa" else write_bpd(tmp_path, bpd_tensors())
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(PoolError, match=message) as caught:
        load_heads(kind, tmp_path, model)
    assert "\n" not in str(caught.value)


def test_a_list_of_tensors_is_no_file_of_heads(model, tmp_path):
    write_medusa(tmp_path, medusa_tensors())
    torch.save([torch.zeros(2)], tmp_path / "medusa_lm_head.pt")
    with pytest.raises(PoolError, match="is not a file of named tensors"):
        load_heads("medusa", tmp_path, model)
