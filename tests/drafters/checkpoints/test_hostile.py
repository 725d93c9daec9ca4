"""Checkpoints that lie or carry code: refused with the file's name, nothing executed."""

import json
import pickle
import struct
from logging import getLogger

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafters.checkpoints.tensor_files import check_tensors, read_config, read_tensors
from drafters.errors import PoolError
from drafters.pool import load_pool
from tests import tiny


class Code:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("write", [torch.save, lambda value, file: file.write_bytes(pickle.dumps(value))])
def test_no_code_of_a_checkpoint_is_run(tmp_path, write):
    write({"weight": Code(tmp_path / "ran")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(PoolError, match=r"cannot read .*pytorch_model\.bin"):
        read_tensors(tmp_path / "pytorch_model.bin")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "header",
    [
        {"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}},
        {"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}},
        {"w": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}},
        {"w": {"dtype": "F32", "shape": [1], "data_offsets": [64, 68]}},
        {"w": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}},
    ],
)
def test_headers_that_lie(tmp_path, header):
    text, file = json.dumps(header).encode(), tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    with pytest.raises(PoolError, match=r"cannot read .*model\.safetensors"):
        read_tensors(file)
    file.write_bytes(struct.pack("<Q", 1 << 60) + text)
    with pytest.raises(PoolError, match=r"cannot read .*model\.safetensors"):
        read_tensors(file)


def test_a_configuration_that_is_nested_without_end(tmp_path):
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(PoolError, match=r"cannot read .*config\.json: it is nested too deeply"):
        read_config(tmp_path / "config.json")
    (tmp_path / "config.json").write_text('{"hidden_size": ' + "9" * 5000 + "}")
    with pytest.raises(PoolError, match=r"config\.json: a number in it has more than 4,300 digits$"):
        read_config(tmp_path / "config.json")


@pytest.mark.parametrize("part", ["../stolen.safetensors", "/stolen.safetensors", 3])
def test_an_index_that_names_other_folders(tmp_path, part):
    card = tiny.write_pool(tmp_path, drafters=[{"name": "lookup", "kind": "pld"}])
    index = tmp_path / "target" / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"w": "model.safetensors", "v": part}}))
    with pytest.raises(PoolError, match=r"index\.json names .*; the files of a checkpoint lie beside their index"):
        load_pool(card)


@pytest.mark.parametrize("wrong", [float("nan"), float("-inf")])
def test_damaged_weights_are_named(tmp_path, wrong):
    card = tiny.write_pool(tmp_path, drafters=[{"name": "lookup", "kind": "pld"}])
    file = tmp_path / "target" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"][3] = wrong
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(
        PoolError, match=r"the target from .*tensor model\.norm\.weight holds numbers that are NaN or inf"
    ):
        load_pool(card)
    for tensor in (torch.tensor([wrong]), torch.tensor([torch.nan]).to(torch.float8_e4m3fn)):
        with pytest.raises(PoolError, match=r"head\.safetensors: the tensor w holds"):
            check_tensors(tmp_path / "head.safetensors", {"w": tensor}, {"w": (1,)}, "heads")


def test_weights_of_another_shape_are_told_with_both(tmp_path, caplog):
    """In one line, without the library's table of tensors."""
    card = tiny.write_pool(tmp_path, drafters=[{"name": "lookup", "kind": "pld"}])
    file = tmp_path / "target" / "model.safetensors"
    tensors = load_file(file)
    rows, size = (weight := tensors["model.embed_tokens.weight"]).shape
    tensors["model.embed_tokens.weight"] = weight[1:].contiguous()
    save_file(tensors, file, {"format": "pt"})
    getLogger("transformers").addHandler(caplog.handler)
    try:
        with pytest.raises(PoolError, match=r"cannot load the target from .*: model\.embed_tokens\.weight is ") as told:
            load_pool(card)
    finally:
        getLogger("transformers").removeHandler(caplog.handler)
    assert f"is [{rows - 1}, {size}] in its weights, and [{rows}, {size}] by its config.json" in str(told.value)
    assert not caplog.records
