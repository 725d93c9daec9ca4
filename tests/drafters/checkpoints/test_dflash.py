"""DFlash networks in the layout of their public folders."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafters.card import load_card
from drafters.checkpoints.dflash import dflash_config, is_published_dflash, read_dflash
from drafters.errors import PoolError
from drafters.kinds.dflash import DFlashDrafter
from drafters.memory import estimate
from drafters.models.target import Target
from drafters.pool import load_pool
from tests import tiny, twins

NAME = "z-lab/Qwen3-8B-DFlash-b16"


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    return twins.write_model(folder, twins.shrunk(twins.CONFIGS["Qwen/Qwen3-8B"]), 1).eval()


@pytest.fixture
def folder(target, tmp_path):
    return twins.write_dflash(tmp_path / "dflash", twins.CONFIGS[NAME], target)


def change(folder, **settings):
    file = folder / "config.json"
    content = {**json.loads(file.read_text()), **settings}
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def seen(kind, causal, window, before, size):
    """Which positions each token of a block sees, as the published code says it."""
    rows = []
    for query in range(before, before + size):
        row = []
        for key in range(before + size):
            visible = key <= query or not causal
            if kind == "sliding_attention":
                visible = visible and query - key < window and (causal or key - query < window)
            row.append(visible)
        rows.append(row)
    return torch.tensor(rows)


def by_the_definition(tensors, config, embedded, states, causal=None):
    """The network in plain tensor operations: a block of embedded tokens after hidden states of the target."""

    def norm(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps) * weight

    size, heads, kv_heads = config.head_dim, config.num_attention_heads, config.num_key_value_heads
    places = torch.arange(len(states) + len(embedded)).float()
    theta = config.rope_parameters["rope_theta"]
    angles = places[:, None] / theta ** (torch.arange(0, size, 2).float() / size)
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)

    def rotated(x, at):  # (T, heads, size)
        low, high = x.chunk(2, -1)
        return x * cos[at, None] + torch.cat([-high, low], -1) * sin[at, None]

    context = norm(states @ tensors["fc.weight"].T, tensors["hidden_norm.weight"])
    x = embedded
    for index in range(config.num_hidden_layers):
        part = {n.removeprefix(f"layers.{index}."): t for n, t in tensors.items() if n.startswith(f"layers.{index}.")}
        read = norm(x, part["input_layernorm.weight"])
        both = torch.cat([context, read])
        query = norm((read @ part["self_attn.q_proj.weight"].T).view(-1, heads, size), part["self_attn.q_norm.weight"])
        key = norm((both @ part["self_attn.k_proj.weight"].T).view(-1, kv_heads, size), part["self_attn.k_norm.weight"])
        value = (both @ part["self_attn.v_proj.weight"].T).view(-1, kv_heads, size)
        query, key = rotated(query, slice(len(states), None)), rotated(key, slice(None))
        key, value = (t.repeat_interleave(heads // kv_heads, 1) for t in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query, key) / size**0.5
        kind = config.layer_types[index]
        one_way = kind == "sliding_attention" if causal is None else causal
        visible = seen(kind, one_way, config.sliding_window, len(states), len(embedded))
        scores = scores.masked_fill(~visible, -torch.inf)
        attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1)
        x = x + attended @ part["self_attn.o_proj.weight"].T
        read = norm(x, part["post_attention_layernorm.weight"])
        gate = torch.nn.functional.silu(read @ part["mlp.gate_proj.weight"].T)
        x = x + (gate * (read @ part["mlp.up_proj.weight"].T)) @ part["mlp.down_proj.weight"].T
    return norm(x, tensors["norm.weight"])


SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}
OWN = {"mask_token_id": 303, "target_layer_ids": [0, 2]}


@torch.inference_mode()
@pytest.mark.parametrize(
    ("settings", "causal"),
    [
        ({}, None),
        (SLIDING, None),
        ({**SLIDING, "is_causal": False}, False),
        ({**SLIDING, "dflash_config": {**OWN, "causal": True}}, True),
        ({**SLIDING, "is_causal": False, "dflash_config": {**OWN, "use_swa": True, "swa_window_size": 5}}, False),
        ({"is_causal": True}, True),
    ],
)
def test_it_drafts_what_the_published_network_says(target, folder, settings, causal):
    change(folder, **settings)
    source = Target(target)
    network, _ = read_dflash(folder, target)
    drafter = DFlashDrafter("dflash", network, target, source)
    tensors, config = load_file(folder / "model.safetensors"), network.config
    assert drafter.layers == (1, 3)  # named by what leaves them
    for ids in tiny.prompts(3, shortest=4, longest=12, vocab=300):
        states = tiny.states_of(target, ids[:-1], drafter.layers)
        block = torch.tensor([ids[-1]] + [config.mask_token_id] * (config.block_size - 1))
        output = by_the_definition(tensors, config, target.get_input_embeddings()(block), states, causal)
        assert drafter.block(ids, 4) == target.lm_head(output)[1:].argmax(-1).tolist()


def test_the_layers_that_are_read_have_a_default():
    published = twins.CONFIGS[NAME]
    own = {key: value for key, value in published["dflash_config"].items() if key != "target_layer_ids"}
    config = {**published, "dflash_config": own, "num_target_layers": 36}
    assert dflash_config(config, twins.RECORDED).target_layer_ids == [1, 9, 17, 25, 33]
    assert dflash_config({**config, "num_hidden_layers": 1}, twins.RECORDED).target_layer_ids == [18]


def test_a_pool_reads_it(tmp_path):
    pool = load_pool(twins.write_pool(tmp_path, "qwen3-8b"))
    drafter = next(d for d in pool.drafters if d.name == "dflash")
    assert drafter.kind == "dflash" and drafter.size == 8
    assert drafter.model.dtype == torch.bfloat16
    assert drafter.model.rotary_emb.inv_freq.dtype == torch.float32  # as the library keeps them


@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_rotations_that_are_said_to_be_plain_are(key):
    plain = twins.CONFIGS[NAME]
    said = {**plain, "rope_scaling": {key: "default", "rope_theta": 7.0}}
    known = [dflash_config(each, Path("config.json")).to_dict() for each in (said, {**plain, "rope_theta": 7.0})]
    assert known[0] == known[1] and known[0]["rope_parameters"]["rope_theta"] == 7.0


def test_what_is_no_published_folder():
    assert is_published_dflash(twins.CONFIGS[NAME])
    assert not is_published_dflash({"architectures": ["MuseGlimmerAssistantModel"]}) and not is_published_dflash({})
    assert is_published_dflash({"architectures": ["DSparkDraftModel"], "dflash_config": {}}), "and refused as such"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention_bias": True}, "attention biases, scaled rotations or another activation"),
        ({"rope_scaling": {"type": "yarn"}}, "attention biases, scaled rotations"),
        ({"rope_scaling": {"factor": 4.0}}, "attention biases, scaled rotations"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "attention biases, scaled rotations"),
        ({"layer_types": ["chunked_attention"] * 2}, "layer_types has 'chunked_attention'"),
        ({"layer_types": ["sliding_attention"] * 2, "sliding_window": None}, "no sliding_window to say how far"),
        ({**SLIDING, "use_sliding_window": False}, "no sliding_window to say how far"),
        ({"dflash_config": {**OWN, "use_swa": True, "swa_window_size": 5}}, "use_swa with swa_window_size 5 is read"),
        (
            {**SLIDING, "dflash_config": {**OWN, "use_swa": True, "swa_window_size": 6}},
            "use_swa with swa_window_size 6",
        ),
        ({"is_causal": "no"}, "must be true or false, got 'no'"),
        ({"dflash_config": {**OWN, "attention_sink_bias": True}}, "attention_sink_bias is True"),
        ({"dflash_config": {**OWN, "sample_from_anchor": True}}, "sample_from_anchor is True; DFlash networks with it"),
        ({"is_neox_style": False}, "is_neox_style is False; DFlash networks with it cannot be computed here"),
        (
            {"dflash_config": None, "num_target_layers": None},
            "target_layer_ids must list the target's layers that the network reads, got None",
        ),
        ({"dflash_config": {"target_layer_ids": [1]}}, "mask_token_id must be a whole number"),
        ({"block_size": 0}, "block_size must be a whole number from 1 to 1,000, got 0"),
        ({"dflash_config": [7]}, r"dflash_config must be an object, got \[7\]"),
        ({"dflash_config": {**OWN, "target_layer_ids": [-1]}}, r"target's layers that the network reads, got \[-1\]"),
        ({"layer_types": ["full_attention"]}, r"layer_types must name the kinds of 2 layers, got \['full_attention'\]"),
        ({"layer_types": 7}, "layer_types must name the kinds of 2 layers, got 7"),
        ({"rope_parameters": 7}, "rope_parameters must be an object, got 7"),
        ({"rope_theta": "big"}, r"json is no configuration of a DFlash network: could not convert .*'big'"),
        ({"rms_norm_eps": []}, r"json is no configuration of a DFlash network"),
        ({"hidden_size": 10**30}, r"hidden_size must be a whole number from 1 to 100,000,000, got 10{30}"),
        ({**SLIDING, **dict.fromkeys(("hidden_size", "num_attention_heads", "head_dim"), 10**8)}, "network: Storage"),
        ({"num_hidden_layers": 10**7}, "num_hidden_layers must be a whole number from 1 to 1,000, got 10000000"),
        ({"architectures": ["DominoDraftModel"]}, r"architectures is \['DominoDraftModel'\]; dflash drafters read DFl"),
        (
            {"speculators_model_type": "peagle"},
            r"config\.json is of a speculator of type 'peagle'; dflash drafters read",
        ),
        ({"head_dim": 8}, r"tensor layers\.0\.self_attn\.q_proj\.weight has the shape \[64, 64\], but \[32, 64\]"),
    ],
)
def test_a_folder_that_cannot_be_read_says_why(target, folder, settings, message):
    change(folder, **settings)
    with pytest.raises(PoolError, match=message):
        read_dflash(folder, target)


def test_missing_and_unknown_tensors_are_named(target, folder):
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "embed_tokens.weight": torch.zeros(2, 2)}, folder / "model.safetensors")
    with pytest.raises(PoolError, match=r"holds the tensor embed_tokens\.weight .* DFlash networks do not"):
        read_dflash(folder, target)
    del tensors["fc.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(PoolError, match=r"lacks the tensor fc\.weight"):
        read_dflash(folder, target)
    (folder / "model.safetensors").unlink()
    with pytest.raises(PoolError, match=r"should have model\.safetensors"):
        read_dflash(folder, target)


def test_the_configuration_keeps_what_the_published_one_says():
    config = dflash_config(twins.CONFIGS[NAME], twins.RECORDED)
    assert (config.block_size, config.mask_token_id, config.target_layer_ids) == (16, 151669, [1, 9, 17, 25, 33])
    assert config.layer_types == ["full_attention"] * 5 and config.rope_parameters["rope_theta"] == 10_000.0
    for newer in ({"rope_theta": 1e6}, {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}):
        assert dflash_config({**twins.CONFIGS[NAME], **newer}, twins.RECORDED).rope_parameters["rope_theta"] == 1e6


def as_speculators(folder, *, tokens=None, **settings):
    """The network in ``folder`` as ``speculators`` writes it, with an output layer of the first ``tokens`` odd ids."""
    config, tensors = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    own = config.pop("dflash_config")
    layers = {name: value for name, value in config.items() if name not in ("architectures", "block_size")}
    size, hidden = config["vocab_size"], config["hidden_size"]
    lent = {"verifier_norm.weight": torch.ones(hidden), "embed_tokens.weight": torch.zeros(size, hidden)}
    if tokens:
        ids = 2 * torch.arange(tokens) + 1
        known = torch.zeros(size, dtype=torch.bool)
        known[ids] = True
        generator = torch.Generator().manual_seed(8)
        lent |= {"lm_head.weight": torch.randn(tokens, hidden, generator=generator), "t2d": known}
        lent["d2t"] = ids - torch.arange(tokens)
    save_file({**tensors, **lent}, folder / "model.safetensors")
    content = {
        "architectures": ["DFlashSpeculator"],
        "speculators_model_type": "dflash",
        "block_size": config["block_size"],
        "mask_token_id": own["mask_token_id"],
        "aux_hidden_state_layer_ids": own["target_layer_ids"],
        "draft_vocab_size": tokens or size,
        "transformer_layer_config": layers,
        "target_hidden_size": None,
        **settings,
    }
    (folder / "config.json").write_text(json.dumps(content))
    return {**tensors, **lent}


@torch.inference_mode()
@pytest.mark.parametrize(
    ("settings", "causal"), [({}, None), (SLIDING, None), ({**SLIDING, "sliding_window_non_causal": True}, False)]
)
@pytest.mark.parametrize("tokens", [None, 100])
def test_it_drafts_what_the_network_of_speculators_says(target, folder, tokens, settings, causal):
    tensors = as_speculators(folder, tokens=tokens, **settings)
    network, output = read_dflash(folder, target)
    drafter = DFlashDrafter("dflash", network, target, Target(target), output)
    assert drafter.layers == (1, 3)
    for ids in tiny.prompts(3, shortest=8, longest=12, vocab=300):
        states = tiny.states_of(target, ids[:-1], drafter.layers)
        block = torch.tensor([ids[-1]] + [network.config.mask_token_id] * (network.config.block_size - 1))
        made = by_the_definition(tensors, network.config, target.get_input_embeddings()(block), states, causal)[1:]
        if tokens:
            expected = (2 * (made @ tensors["lm_head.weight"].T).argmax(-1) + 1).tolist()
        else:
            expected = target.lm_head(made).argmax(-1).tolist()
        assert drafter.block(ids, 4) == expected


def test_a_pool_reads_that_of_speculators(tmp_path):
    card = twins.write_pool(tmp_path, "qwen3-8b")
    plain = next(d for d in load_pool(card).drafters if d.name == "dflash")
    as_speculators(tmp_path / NAME.replace("/", "--"), tokens=100)
    drafter = next(d for d in load_pool(card).drafters if d.name == "dflash")
    assert (plain.outputs, drafter.outputs) == (304, 100) and plain.digest != drafter.digest
    assert drafter.parameter_count - plain.parameter_count == 100 * twins.HIDDEN
    estimated = next(part for part in estimate(load_card(card)[0], card, "cpu").parts if part.name == "dflash")
    assert estimated.parameters == drafter.parameter_count


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draft_vocab_size": 99}, r"tensor lm_head\.weight has the shape \[100, 64\], but \[99, 64\] is expected"),
        ({"projector_type": "domino"}, "projector_type is 'domino'; DFlash networks with it cannot be computed here"),
        ({"shift_label": True}, "shift_label is True; DFlash networks with it"),
        ({"aux_hidden_state_layer_ids": None}, "target_layer_ids must list the target's layers"),
    ],
)
def test_what_does_not_fit_of_speculators(target, folder, settings, message):
    as_speculators(folder, tokens=100, **settings)
    with pytest.raises(PoolError, match=message):
        read_dflash(folder, target)
