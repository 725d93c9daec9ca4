"""Layers for multi-token prediction as a target's own checkpoint holds them: after its last layer, by public names."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from drafters.card import load_card
from drafters.checkpoints.loading import load_mtp
from drafters.errors import PoolError
from drafters.memory import estimate
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from multidraft import generate
from tests import tiny
from tests.drafters.kinds.test_block import MOE, MOE_KINDS

LAYERS = {"deepseek_v3": 61, "glm4_moe": 46}
"""By kind the layers of a published target, since the library knows the next one's name by its number: DeepSeek-V3 and
-R1, GLM-4.5-Air."""


def write(folder, kind, *, change=None, **config):
    """A card whose target's checkpoint holds one more layer than its configuration counts.

    Returns:
        The card's path, a model that counts that layer too, and the layer's other tensors by their public names.
    """
    card, count = tiny.write_pool(folder, drafters=[{"name": "mtp", "kind": "mtp"}]), LAYERS[kind]
    settings = {**MOE, **MOE_KINDS[kind], "num_hidden_layers": count + 1}
    whole = tiny.spread(AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**settings)), 1)
    whole.save_pretrained(folder / "target")
    file, path = folder / "target" / "model.safetensors", folder / "target" / "config.json"
    tensors, generator = load_file(file), torch.Generator().manual_seed(3)
    others = {name: torch.rand(24, generator=generator) + 0.5 for name in ("enorm", "hnorm", "shared_head.norm")}
    others["eh_proj"] = torch.randn(24, 48, generator=generator) * 0.4
    others |= {"shared_head.head": tensors["lm_head.weight"], "embed_tokens": tensors["model.embed_tokens.weight"]}
    tensors |= {f"model.layers.{count}.{name}.weight": tensor.clone() for name, tensor in others.items()}
    (change or (lambda _: None))(tensors)
    save_file(tensors, file, {"format": "pt"})
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": count, **config}))
    return card, whole.eval(), others


@torch.inference_mode()
def plain(target, whole, others, ids, length):
    """What the layer drafts: all positions anew for each token, as DeepSeek-V3 (2024, Sec. 2.2) and vLLM say."""

    def norm(x, name):
        return x / (x.pow(2).mean(-1, keepdim=True) + target.config.rms_norm_eps).sqrt() * others[name]

    states, tokens, drafted = tiny.states_of(target, ids, (len(target.model.layers),))[:-1], ids[1:], []
    for step in range(length):
        if step:
            states, tokens = torch.cat([states, made[-1:]]), [*tokens, drafted[-1]]  # noqa: F821 (of the step before)
        x = torch.cat([norm(others["embed_tokens"][tokens], "enorm"), norm(states, "hnorm")], dim=-1)
        x, positions = (x @ others["eh_proj"].T)[None], torch.arange(1, len(tokens) + 1)[None]
        seen = torch.full((len(tokens), len(tokens)), -torch.inf).triu(1)[None, None]
        turned = whole.model.rotary_emb(x, position_ids=positions)
        block = whole.model.layers[-1]
        made = norm(
            block(x, attention_mask=seen, position_ids=positions, position_embeddings=turned)[0], "shared_head.norm"
        )
        drafted.append(int((others["shared_head.head"] @ made[-1]).argmax()))
    return tuple(drafted)


@pytest.mark.parametrize("kind", LAYERS)
def test_drafts_of_a_published_layout(tmp_path, kind, capfd):
    card, whole, others = write(tmp_path, kind)
    capfd.readouterr()
    pool = load_pool(card)
    assert "Loading weights" not in capfd.readouterr().err
    (drafter,), params = pool.drafters, SamplingParams(8, draft_length=3)
    assert len(drafter.model.layers) == 1 and not drafter.model.training and drafter.outputs == tiny.VOCAB
    found = set()
    for ids in tiny.prompts(6, seed=2, shortest=4):
        draft = drafter.propose(ids, 3, params, torch.Generator())
        assert draft.tokens == plain(pool.target.model, whole, others, ids, 3)
        found.add(draft.tokens)
    assert len(found) > 2
    texts = [generate(pool, ids, policy, params, 0) for policy in ("autoregressive", "fixed:mtp")]
    assert texts[0].token_ids == texts[1].token_ids
    assert estimate(load_card(card)[0], card, "cpu").parts[1].parameters == drafter.parameter_count


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def in_8_bits(tensors):
    for name in [name for name in tensors if name.endswith("_proj.weight") and "eh_proj" not in name]:
        scale = tensors[name].abs().max() / 448
        tensors[name] = (tensors[name] / scale).to(torch.float8_e4m3fn)
        tensors[name + "_scale_inv"] = scale.reshape(1, 1)


def damaged(tensors):
    tensors["model.layers.46.eh_proj.weight"][0, 0] = torch.nan


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_nextn_predict_layers": 0}, r"its configuration names none \(num_nextn_predict_layers\).*from the card"),
        ({"change": lambda t: t.pop("model.layers.46.hnorm.weight")}, r"weights are missing from .*0\.hnorm\.weight"),
        ({"change": damaged}, r"tensor 0\.eh_proj\.weight holds numbers that are NaN or infinite"),
    ],
)
def test_layers_that_cannot_be_used(tmp_path, settings, message):
    card, _, _ = write(tmp_path, "glm4_moe", **settings)
    with pytest.raises(PoolError, match=rf"drafter 'mtp': the target brings no multi-token-prediction .*{message}"):
        load_pool(card)


def test_targets_without_such_layers(tmp_path):
    card = tiny.write_pool(tmp_path, drafters=[{"name": "mtp", "kind": "mtp"}])
    for attempt in (lambda: load_pool(card), lambda: estimate(load_card(card)[0], card, "cpu")):
        with pytest.raises(PoolError, match=r"drafter 'mtp': the target brings no .* names none"):
            attempt()


def test_such_a_target_is_refused_before_its_weights_are_read(tmp_path):
    card = tiny.write_pool(tmp_path, drafters=[{"name": "mtp", "kind": "mtp"}])
    (tmp_path / "target" / "model.safetensors").unlink()
    with pytest.raises(PoolError, match=r"drafter 'mtp': the target brings no .* names none"):
        load_pool(card)


def test_targets_that_run_on_8_bits(tmp_path):
    """As published in them, on a GPU that computes with them. Where they are unpacked, so are the layers."""
    card, whole, _ = write(tmp_path, "glm4_moe", change=in_8_bits, quantization_config=FP8)
    refused = "its checkpoint holds numbers of 8 bits; name one of 16 bits, or remove"
    if tuple(map(int, transformers.__version__.split(".")[:2])) >= (5, 24):  # unpacked, but without their scales
        with pytest.raises(PoolError, match=refused):
            load_pool(card)
        return
    pool = load_pool(card)
    loaded = pool.drafters[0].model.layers[0].mtp_block.self_attn.q_proj.weight
    torch.testing.assert_close(loaded, whole.model.layers[-1].self_attn.q_proj.weight, rtol=0.1, atol=0.01)
    weight = pool.target.model.model.layers[1].self_attn.q_proj.weight
    weight.data = weight.data.to(torch.float8_e4m3fn)
    with pytest.raises(ValueError, match=refused):
        load_mtp(pool.target.model)
    weight.data = weight.data.float()
    load_mtp(pool.target.model)
    del pool.target.model._weight_conversions
    with pytest.raises(ValueError, match=refused):
        load_mtp(pool.target.model)
