"""EAGLE-1 and -2 heads as others convert them, and heads of some tokens only, by lists of FR-Spec or vLLM."""

import copy
import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from drafters.checkpoints.eagle import head_shapes, read_head
from drafters.draft import Draft
from drafters.errors import PoolError
from drafters.models import eagle_head
from drafters.models.eagle_head import EagleHead
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from multidraft import generate
from tests import heads, tiny

TOKENS = [3, 7, 2, 9, 4, 1, 5, 8]
IDS = [9, 2, 5, 11, 4, 3]
"""Of the twelve tokens of the tiny target those of a map, as they are listed: by how frequent they are."""


@pytest.fixture(scope="module")
def target():
    target = tiny.llama(1, layers=2)
    target.lm_head.bias = nn.Parameter(torch.arange(tiny.VOCAB) / 5.0)
    return target


@pytest.fixture(params=["onnx", "torch"], autouse=True)
def runtime(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(eagle_head, "unsupported", lambda *_: "as asked")


def eagle1(target):
    """Configuration and tensors of a head in EAGLE's own layout."""
    size = target.config.hidden_size
    return heads.config_of("eagle1", target, size), heads.tensors_of("eagle1", target, 4, size)


def written(folder, config, tensors):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def vllm(target, *, mapped, whole=True):
    """As vLLM had it: the layer's configuration in ``model``, norms that it leaves out, an output layer."""
    config, tensors = eagle1(target)
    converted = {"model_type": "eagle", "architectures": ["EAGLEModel"], "eagle_fc_bias": True, "model": config}
    renamed = {name if name.startswith("fc.") else f"model.{name}": tensor for name, tensor in tensors.items()}
    ones = torch.ones(target.config.hidden_size)
    renamed |= {"model.layers.0.input_layernorm.weight": 3 * ones, "model.norm.weight": 2 * ones}
    output = torch.randn(tiny.VOCAB, len(ones), generator=torch.Generator().manual_seed(6))
    if mapped:
        converted |= {"vocab_size": tiny.VOCAB, "truncated_vocab_size": len(IDS)}
        renamed["token_map"] = torch.tensor(IDS)
    renamed["lm_head.weight"] = output if whole or not mapped else output[IDS]
    return converted, renamed, output


def expected(target, output, bias):
    """Logits of all tokens after each pair, plainly, where ``output`` reads them."""
    config, tensors = eagle1(target)
    pairs = list(zip(tiny.states_of(target, TOKENS, (2,))[:-1], TOKENS[1:], strict=True))
    other = copy.deepcopy(target)
    other.lm_head.weight = nn.Parameter(output)
    return torch.stack([heads.plain(config, tensors, other, pairs[: end + 1]) for end in range(len(pairs))]) + bias


def made(head, target):
    features = tiny.states_of(target, TOKENS, (2,))
    return head.step(torch.tensor(TOKENS[1:]), features[:-1], 0).logits


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("mapped", [True, False])
def test_heads_as_vllm_had_them(tmp_path, target, mapped, whole):
    config, tensors, output = vllm(target, mapped=mapped, whole=whole)
    shape, found = read_head(written(tmp_path, config, tensors), target)
    head, wanted = EagleHead(shape, found, target), expected(target, output, 0.0)
    close(made(head, target), wanted[:, IDS] if mapped else wanted)
    assert head.vocab_size == (len(IDS) if mapped else tiny.VOCAB)
    assert (head.to_target.tolist() == IDS) if mapped else head.to_target is None
    assert found["lm_head.weight"].shape[0] == shape.vocab_size


@pytest.mark.parametrize("setting", [{"skip_prenorm": False}, {"skip_output_norm": False}, {"add_para_norm": True}])
def test_norms_of_vllm_that_eagle_has_not(tmp_path, target, setting):
    config, tensors, _ = vllm(target, mapped=False)
    folder = written(tmp_path, {**config, "model": {**config["model"], **setting}}, tensors)
    with pytest.raises(PoolError, match=rf"json: {next(iter(setting))} is .* cannot be computed here"):
        read_head(folder, target)


def test_maps_that_do_not_fit(tmp_path, target):
    config, tensors, _ = vllm(target, mapped=True)
    for ids, message in (
        (torch.tensor([9, 2, 5, 12, 4, 3]), r"d2t leads to token ids 2 to 12, but the target has 12 tokens"),
        (torch.tensor([9, 2, 5, 5, 4, 3]), r"leads from several tokens of the head to one"),
        (torch.ones(6, dtype=torch.bool), r"leads from several tokens of the head to one"),
        (torch.tensor([9, 2]), r"tensor d2t has the shape \[2\], but \[6\] is expected"),
    ):
        with pytest.raises(PoolError, match=message):
            read_head(written(tmp_path, config, {**tensors, "token_map": ids}), target)
    del tensors["token_map"], tensors["lm_head.weight"]
    with pytest.raises(
        PoolError, match=r"lacks the tensor d2t of shape \[6\]: it proposes 6 of the target's 12 tokens"
    ):
        read_head(written(tmp_path, config, tensors), target)


@pytest.mark.parametrize("layernorms", [False, True])
def test_eagle_1_of_speculators(tmp_path, target, layernorms):
    own, tensors = eagle1(target)
    del tensors["embed_tokens.weight"]
    names = {name: name.replace("layers.0.", "transformer.").replace("fc.", "fusion_fc.") for name in tensors}
    config = {"speculators_model_type": "eagle", "architectures": ["EagleSpeculator"], "layernorms": layernorms}
    config |= {"fusion_bias": True, "transformer_layer_config": own}
    folder = written(tmp_path, config, {names[name]: tensor for name, tensor in tensors.items()})
    if layernorms:
        with pytest.raises(PoolError, match="layernorms is True; EAGLE heads with it"):
            read_head(folder, target)
        return
    shape, found = read_head(folder, target)
    assert shape.generation == 1 and found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_a_list_of_tokens_confines_a_head_of_all(tmp_path, target):
    """Of EAGLE-1 and -2 the rows are the target's output layer's, bias included; of EAGLE-3 its own."""
    shape, found = read_head(heads.write_head(tmp_path / "one", "eagle1", target, seed=4), target, sorted(IDS))
    head = EagleHead(shape, found, target)
    close(
        made(head, target), expected(target, target.lm_head.weight.data, target.lm_head.bias.detach())[:, sorted(IDS)]
    )
    assert head.to_target.tolist() == sorted(IDS)
    assert head.parameter_count == sum(t.numel() for n, t in found.items() if n != "d2t") + len(IDS) * 24

    folder = heads.write_head(tmp_path / "three", "eagle3.1", target)
    whole, confined = (EagleHead(*read_head(folder, target, tokens), target) for tokens in (None, sorted(IDS)))
    features = tiny.states_of(target, TOKENS, whole.shape.layers)
    rows = [h.step(torch.tensor(TOKENS[1:]), h.fuse(features[:-1]), 0).logits for h in (whole, confined)]
    close(rows[1], rows[0][:, sorted(IDS)])
    with pytest.raises(PoolError, match=r"proposes 9 of the target's tokens already; remove token_map from the card"):
        read_head(heads.write_head(tmp_path / "reduced", "eagle3", target), target, IDS)


def test_drafters_of_a_list_in_a_pool(tmp_path):
    """FR-Spec's folders are EAGLE-2's with a list beside; chain and tree share one head, the head of all is another."""
    torch.save([*IDS, IDS[0]], tmp_path / "freq_6.pt")
    entry = {"kind": "eagle", "path": "head"}
    mapped = {**entry, "token_map": "freq_6.pt"}
    drafters = [{"name": "chain", **mapped}, {"name": "tree", "nodes": 6, **mapped}, {"name": "all", **entry}]
    card = tiny.write_pool(tmp_path, drafters=drafters)
    heads.write_head(tmp_path / "head", "eagle1", tiny.llama(1))
    pool = load_pool(card)
    chain, tree, everything = pool.drafters
    assert chain.head is tree.head is not everything.head
    assert [drafter.outputs for drafter in pool.drafters] == [6, 6, tiny.VOCAB]
    assert chain.digest == tree.digest != everything.digest
    prompt, params = tiny.prompts(1, seed=5, shortest=8)[0], SamplingParams(16, draft_length=4)
    texts = [generate(pool, prompt, policy, params, 0) for policy in ("autoregressive", "fixed:chain", "fixed:tree")]
    assert len({tuple(text.token_ids) for text in texts}) == 1
    drafts = [d.propose(prompt, 4, params, torch.Generator(), with_q=True) for d in (chain, tree)]
    assert all(isinstance(draft, Draft) and draft.tokens and set(draft.tokens) <= set(IDS) for draft in drafts)


def test_the_estimate_counts_the_rows_of_a_list(tmp_path, target):
    config, _ = eagle1(target)
    shape, shapes = head_shapes(config, target, tmp_path / "config.json", IDS)
    assert shape.vocab_size == len(IDS) and shapes["lm_head.weight"] == (6, 24) and shapes["d2t"] == (6,)
    plain = head_shapes(config, target, tmp_path / "config.json")[1]
    assert shapes.keys() - plain.keys() == {"lm_head.weight", "d2t"}
