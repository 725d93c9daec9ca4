"""EAGLE heads in the layouts of single public programs: what each writes, leaves out or means."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafters.checkpoints.eagle import WEIGHT_FILES, head_shapes, read_head
from drafters.checkpoints.tensor_files import stored_numbers
from drafters.errors import PoolError
from drafters.models.eagle_head import EagleHead
from tests import heads, tiny


@pytest.fixture(scope="module")
def target():
    return tiny.llama(1, layers=6)


def change(folder, *without, **settings):
    """Tensors left out of a head's file, and settings of its configuration."""
    file, config = folder / "model.safetensors", folder / "config.json"
    if without:
        tensors = load_file(file)
        save_file({name: tensors[name] for name in tensors if name not in without}, file)
    config.write_text(json.dumps({**json.loads(config.read_text()), **settings}))
    return folder


def test_model_optimizer_writes_no_layers_for_the_usual_ones(tmp_path, target):
    """Its configuration holds an empty list where nothing else was asked for."""
    own = {"eagle_aux_hidden_state_layer_ids": [], "use_aux_hidden_state": True, "norm_before_fc": True}
    folder = heads.write_head(tmp_path, "eagle3.1", target)
    assert read_head(change(folder, eagle_config=own), target)[0].layers == (2, 3, 3)
    own["use_aux_hidden_state"] = False
    with pytest.raises(PoolError, match=r"config\.json: use_aux_hidden_state is false.*several fused ones"):
        read_head(change(folder, eagle_config=own), target)


def test_the_target_lends_its_output_layer_to_heads_of_all_tokens(tmp_path, target):
    """Model Optimizer writes none, and SGLang and llama.cpp take the target's then."""
    folder = heads.write_head(tmp_path / "whole", "eagle3.1", target)
    borrowing = heads.write_head(tmp_path / "borrowing", "eagle3.1", target)
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "lm_head.weight": target.lm_head.weight.detach()}, folder / "model.safetensors")
    ids, logits = torch.tensor([3, 7, 2]), []
    for each in (folder, change(borrowing, "lm_head.weight")):
        shape, found = read_head(each, target)
        head = EagleHead(shape, found, target)
        logits.append(head.step(ids, head.fuse(tiny.states_of(target, [1, 3, 7], shape.layers)), 0).logits)
    assert torch.equal(*logits) and logits[0].shape == (3, tiny.VOCAB)


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ("speculators", "it proposes 9 of the target's 12 tokens|its hidden size"),
        ("specforge", "its hidden size of 32"),
    ],
)
def test_the_target_s_output_layer_does_not_fit_others(tmp_path, target, layout, reason):
    folder = change(heads.write_head(tmp_path, layout, target), "lm_head.weight")
    with pytest.raises(PoolError, match=rf"lacks the tensor lm_head\.weight of shape \[9, 32\]: ({reason})"):
        read_head(folder, target)


@pytest.mark.parametrize("kinds", [["sliding_attention"], "sliding_attention"])
def test_sliding_layers_are_refused(tmp_path, target, kinds):
    """``speculators`` trains such heads, vLLM applies their window, and full attention would lose acceptance."""
    folder = heads.write_head(tmp_path, "speculators", target)
    layer = json.loads((folder / "config.json").read_text())["transformer_layer_config"]
    change(folder, transformer_layer_config={**layer, "layer_types": ["full_attention"], "sliding_window": 4})
    read_head(folder, target)
    change(folder, transformer_layer_config={**layer, "layer_types": kinds, "sliding_window": 4})
    with pytest.raises(PoolError, match=r"config\.json: layer_types has sliding layers"):
        read_head(folder, target)


def test_rotations_written_twice_are_those_of_either(tmp_path, target):
    """SpecForge repeats ``rope_parameters`` as ``rope_scaling`` and ``rope_theta`` for older programs."""
    scaled = {"rope_type": "linear", "factor": 4.0}
    both = {"rope_theta": 5e5, "rope_scaling": scaled, "rope_parameters": {**scaled, "rope_theta": 5e5}}
    folder = heads.write_head(tmp_path, "specforge", target)
    assert read_head(change(folder, **both), target)[0].config.rope_parameters == both["rope_parameters"]


@pytest.mark.parametrize("name", ["norm_before_residual", "norm_output", "norm_before_fc", "fc_norm"])
def test_settings_that_are_neither_true_nor_false(tmp_path, target, name):
    folder = change(heads.write_head(tmp_path, "speculators", target), **{name: "false"})
    with pytest.raises(PoolError, match=rf"config\.json: {name} must be true or false, got 'false'"):
        read_head(folder, target)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": 10**30}, r"hidden_size must be a whole number from 1 to 100,000,000, got 10{30}$"),
        ({"num_hidden_layers": 10**7}, "num_hidden_layers must be a whole number from 1 to 1,000, got 10000000$"),
        ({"head_dim": 10**12}, "head_dim must be a whole number from 1 to 100,000,000, got 1000000000000$"),
        ({"intermediate_size": 1e30}, r"intermediate_size must be a whole number from 1 to 100,000,000, got 1e\+30$"),
        ({"hidden_size": "24"}, "hidden_size must be a whole number from 1 to 100,000,000, got '24'$"),
        ({"rope_theta": 0}, "rotary positions cannot be computed from rope_theta and rope_parameters"),
        ({"rope_theta": -1}, "rotary positions cannot be computed from rope_theta and rope_parameters"),
        (
            {"hidden_size": 10**8, "num_attention_heads": 10**8, "head_dim": 10**5},
            "is no configuration of a Llama layer: Storage size",
        ),
    ],
)
@pytest.mark.parametrize("with_tensors", [True, False])
def test_sizes_that_no_head_has(tmp_path, target, settings, message, with_tensors):
    """Whether the tensors are read or, as for an estimate, only the configuration."""
    folder = change(heads.write_head(tmp_path, "specforge", target), **settings)
    with pytest.raises(PoolError, match=rf"config\.json.*{message}"):
        if with_tensors:
            read_head(folder, target)
        else:
            head_shapes(json.loads((folder / "config.json").read_text()), target, folder / "config.json")


@pytest.mark.parametrize("layout", ["eagle1", "eagle3", "speculators"])
def test_weights_in_parts_are_those_of_one_file(tmp_path, target, layout):
    """As ``save_pretrained`` cuts large ones: parts named by an index, in either format."""
    folder = heads.write_head(tmp_path, layout, target)
    whole, numbers = read_head(folder, target)[1], stored_numbers(folder, WEIGHT_FILES)
    file = next(folder / name for name in WEIGHT_FILES if (folder / name).is_file())
    tensors = load_file(file) if file.suffix == ".safetensors" else torch.load(file, weights_only=True)
    file.unlink()
    parts = {name: f"{file.stem}-0000{1 + place % 2}-of-00002{file.suffix}" for place, name in enumerate(tensors)}
    for part in set(parts.values()):
        own = {name: tensors[name] for name in tensors if parts[name] == part}
        save_file(own, folder / part) if file.suffix == ".safetensors" else torch.save(own, folder / part)
    index = folder / (file.name + ".index.json")
    index.write_text(json.dumps({"metadata": {}, "weight_map": parts}))
    assert stored_numbers(folder, WEIGHT_FILES) == numbers
    found = read_head(folder, target)[1]
    assert found.keys() == whole.keys() and all(torch.equal(found[name], whole[name]) for name in whole)
    (folder / part).unlink()
    with pytest.raises(PoolError, match=rf"cannot read .*{part}"):
        read_head(folder, target)
    index.write_text(json.dumps({"weight_map": {"fc.weight": "../stolen.bin"}}))
    with pytest.raises(PoolError, match="the files of a checkpoint lie beside their index"):
        read_head(folder, target)


def latent(tensors):
    for part in ("q_a_proj", "q_b_proj", "kv_b_proj"):
        tensors[f"layers.0.self_attn.{part}.weight"] = torch.zeros(4, 4)
    del tensors["layers.0.self_attn.q_proj.weight"]


def experts(tensors):
    tensors["layers.0.mlp.experts.0.gate_proj.weight"] = tensors.pop("layers.0.mlp.gate_proj.weight")


def in_8_bits(tensors):
    tensors["fc.weight"] = tensors["fc.weight"].to(torch.float8_e4m3fn)
    tensors["fc.weight_scale"] = torch.ones(1)


@pytest.mark.parametrize(
    ("change_tensors", "message"),
    [
        (latent, r"lacks the tensor layers\.0\.self_attn\.q_proj\.weight"),
        (experts, r"lacks the tensor layers\.0\.mlp\.gate_proj\.weight"),
        (in_8_bits, r"holds the tensor fc\.weight_scale of shape \[1\], which EAGLE-3 heads do not have"),
        (lambda t: t.update(mask_hidden=torch.zeros(1, 72)), r"holds the tensor mask_hidden of shape \[1, 72\], which"),
        (
            lambda t: t.update({"parallel_draft_heads.0.medusa_layers.0.linear.weight": torch.zeros(2, 2)}),
            r"holds the tensor parallel_draft_heads\.0\.medusa_layers\.0\.linear\.weight",
        ),
    ],
)
def test_networks_of_other_kinds_are_refused(tmp_path, target, change_tensors, message):
    """Kimi's and gpt-oss' heads, those that Model Optimizer quantised, P-EAGLE, and parallel drafting."""
    folder = heads.write_head(tmp_path, "speculators", target)
    tensors = load_file(folder / "model.safetensors")
    change_tensors(tensors)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(PoolError, match=message):
        read_head(folder, target)
