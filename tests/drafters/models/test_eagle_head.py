"""EAGLE heads compute what their papers say: compared with a plain recomputation, without cache or masks."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafters.checkpoints.eagle import read_head
from drafters.errors import PoolError
from drafters.models import eagle_head
from drafters.models.eagle_head import EagleHead
from drafters.models.onnx_head import unsupported
from drafters.models.target import Target
from tests import heads, tiny

TOKENS = [3, 7, 2, 9, 4, 1, 5, 8]


@pytest.fixture(scope="module")
def target():
    return tiny.llama(1, layers=2)


@pytest.fixture(params=["onnx", "torch"], autouse=True)
def runtime(request, monkeypatch):
    """Every test on both."""
    if request.param == "torch":
        monkeypatch.setattr(eagle_head, "unsupported", lambda *_: "as asked")
    return request.param


@pytest.fixture(params=heads.LAYOUTS)
def layout(request):
    return request.param


def loaded(tmp_path, layout, target):
    folder = heads.write_head(tmp_path / layout, layout, target, seed=4)
    shape, tensors = read_head(folder, target)
    file = folder / "model.safetensors"
    raw = load_file(file) if file.exists() else torch.load(folder / "pytorch_model.bin", weights_only=True)
    return EagleHead(shape, tensors, target), json.loads((folder / "config.json").read_text()), raw


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_step_by_step_and_over_a_tree(tmp_path, layout, target):
    """Real pairs in two parts, then a tree of two levels in two steps with masks, each node against its own path."""
    head, config, raw = loaded(tmp_path, layout, target)
    assert head.shape.layers == ((2,) if layout == "eagle1" else (0, 1, 1))
    features = tiny.states_of(target, TOKENS, head.shape.layers)
    pairs = list(zip(features[:-1], TOKENS[1:], strict=True))
    ids = torch.tensor(TOKENS[1:])
    first = head.step(ids[:4], head.fuse(features[:4]), 0)
    second = head.step(ids[4:], head.fuse(features[4:7]), 4)
    for index, logits in enumerate([*first.logits, *second.logits]):
        close(logits, heads.plain(config, raw, target, pairs[: index + 1]))
    # Two children of the context, then a child of the second and two of the first.
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, 8] = mask[1, 7] = False
    level = head.step(
        torch.tensor([2, 6]), second.hidden[-1:].expand(2, -1), 7, positions=torch.tensor([7, 7]), mask=mask
    )
    for token, logits in zip((2, 6), level.logits, strict=True):
        close(logits, heads.plain(config, raw, target, [*pairs, (None, token)]))
    mask = torch.zeros(3, 12, dtype=torch.bool)
    mask[:, :7] = True
    for row, seen in enumerate([[8, 9], [7, 10], [7, 11]]):
        mask[row, seen] = True
    last = head.step(torch.tensor([5, 3, 9]), level.hidden[[1, 0, 0]], 9, positions=torch.tensor([8, 8, 8]), mask=mask)
    for path, logits in zip([(6, 5), (2, 3), (2, 9)], last.logits, strict=True):
        drafted = [(None, token) for token in path]
        close(logits, heads.plain(config, raw, target, [*pairs, *drafted]))


def test_forgotten_pairs_leave_no_trace(tmp_path, layout, target):
    head, config, raw = loaded(tmp_path, layout, target)
    features = tiny.states_of(target, TOKENS, head.shape.layers)
    head.step(torch.tensor([1, 1, 1, 1, 1, 1, 1]), head.fuse(features[:7]), 0)
    made = head.step(torch.tensor(TOKENS[1:]), head.fuse(features[:7]), 0, last=1)
    assert len(made.hidden) == len(made.logits) == 1
    close(made.logits[0], heads.plain(config, raw, target, list(zip(features[:-1], TOKENS[1:], strict=True))))


@pytest.mark.parametrize("log_confidence", [-math.inf, -3.0])
def test_a_draft_is_that_of_single_steps(tmp_path, layout, target, runtime, log_confidence):
    head, config, raw = loaded(tmp_path, layout, target)
    assert (head.onnx is None) == (runtime == "torch")
    features = tiny.states_of(target, TOKENS, head.shape.layers)
    made = head.step(torch.tensor(TOKENS[1:]), head.fuse(features[:7]), 0, last=1)
    tokens, logits = head.draft(made, 7, 6, log_confidence, with_logits=True)
    assert len(tokens) == len(logits)
    path, sure = list(zip(features[:-1], TOKENS[1:], strict=True)), 0.0
    for token, found in zip(tokens, logits, strict=True):
        assert sure >= log_confidence
        expected = heads.plain(config, raw, target, path)
        torch.testing.assert_close(found[0], expected, rtol=1e-3, atol=1e-3)  # errors add up over states without a norm
        best = int(expected.argmax())
        assert token == (best if head.to_target is None else head.to_target[best])
        sure += float(expected.log_softmax(0).max())
        path.append((None, token))
    assert len(tokens) == 6 or sure < log_confidence
    assert head.draft(made, 7, 6, log_confidence) == (tokens, [])


def test_twins_share_weights_and_have_caches_of_their_own(tmp_path, layout, target):
    head, config, raw = loaded(tmp_path, layout, target)
    twin = head.twin(Target(target))
    features = tiny.states_of(target, TOKENS, head.shape.layers)
    ids, pairs = torch.tensor(TOKENS[1:]), list(zip(features[:-1], TOKENS[1:], strict=True))
    head.step(ids[:4], head.fuse(features[:4]), 0)
    twin.step(ids.flip(0), head.fuse(features[:7]).flip(0), 0)
    close(head.step(ids[4:], head.fuse(features[4:7]), 4, last=1).logits[0], heads.plain(config, raw, target, pairs))
    assert twin.weights is head.weights


def test_what_onnx_runtime_cannot_run(tmp_path, layout, target):
    head, _, _ = loaded(tmp_path, layout, target)
    assert unsupported(head.shape, torch.float32, "cpu") is None
    assert "float32 on the CPU" in unsupported(head.shape, torch.bfloat16, "cpu")
    assert "float32 on the CPU" in unsupported(head.shape, torch.float32, "cuda")
    head.shape.config.head_dim = 8
    assert "no multiple of 16" in unsupported(head.shape, torch.float32, "cpu")


def test_the_room_grows_with_the_text(tmp_path, target):
    head, _, _ = loaded(tmp_path, "eagle3", target)
    ids = torch.arange(300) % 10 + 1
    hidden = torch.randn(300, 24, generator=torch.Generator().manual_seed(0))
    whole = head.step(ids, hidden, 0).hidden
    head, _, _ = loaded(tmp_path / "again", "eagle3", target)
    parts = [head.step(ids[i : i + 50], hidden[i : i + 50], i).hidden for i in range(0, 300, 50)]
    close(torch.cat(parts), whole)


def test_tokens_that_a_head_can_propose(tmp_path, layout, target):
    head, _, _ = loaded(tmp_path, layout, target)
    if layout in ("eagle1", "eagle3.1"):
        assert head.to_target is None and head.vocab_size == tiny.VOCAB
    else:
        assert head.to_target.tolist() == heads.DRAFT_IDS


def rewritten(folder, change, config=None):
    """The head in ``folder`` with changed tensors and configuration, as safetensors."""
    file = folder / "pytorch_model.bin"
    tensors = torch.load(file, weights_only=True) if file.exists() else load_file(folder / "model.safetensors")
    change(tensors)
    file.unlink(missing_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **(config or {})}))
    return folder


def cut(name, *part):
    """Leave a part of a tensor."""
    return lambda tensors: tensors.update({name: tensors[name][part]})


def without(name):
    return lambda tensors: tensors.pop(name)


@pytest.mark.parametrize(
    ("layout", "change", "message"),
    [
        ("eagle3", without("d2t"), r"lacks the tensor d2t of shape \[9\]: it proposes 9 of the target's 12 tokens"),
        ("eagle3", without("norm.weight"), r"model\.safetensors lacks the tensor norm\.weight"),
        ("eagle3", cut("fc.weight", ..., slice(48)), r"fc\.weight has the shape \[24, 48\], but \[24, 72\]"),
        ("eagle3", cut("lm_head.weight", slice(8)), r"tensor lm_head\.weight has the shape \[8, 24\], but \[9, 24\]"),
        (
            "speculators",
            cut("embed_tokens.weight", slice(11)),
            r"tensor embed_tokens\.weight has the shape \[11, 32\], but \[12, 32\]",
        ),
        (
            "specforge",
            without("embed_tokens.weight"),
            r"lacks the tensor embed_tokens\.weight of shape \[12, 32\]: its hidden size of 32 differs",
        ),
        ("eagle3", lambda t: t["d2t"].fill_(9), r"d2t leads to token ids 9 to 17, but the target has 12 tokens"),
        ("eagle3", lambda t: t["t2d"].fill_(True), "t2d and d2t do not name the same tokens"),
        (
            "eagle3",
            lambda t: t.update(t2d=torch.ones(12).to(torch.float8_e4m3fn)),
            "t2d and d2t do not name the same tokens",
        ),
        ("eagle3", lambda t: t.update(extra=torch.zeros(1)), r"holds the tensor extra of shape \[1\], which EAGLE"),
        ("eagle3.1", without("layers.1.self_attn.k_proj.bias"), r"1\.self_attn\.k_proj\.bias of shape \[32\]"),
        ("eagle1", without("fc.weight"), "is in no known layout"),
        (
            "eagle1",
            lambda t: t.update(d2t=torch.zeros(9)),
            r"tensor d2t has the shape \[9\], but \[12\] is expected of EAGLE-1 and -2 heads",
        ),
        ("eagle1", cut("fc.bias", slice(3)), r"tensor fc\.bias has the shape \[3\], but \[24\]"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, target, layout, change, message):
    folder = rewritten(heads.write_head(tmp_path / "head", layout, target), change)
    with pytest.raises(PoolError, match=message):
        read_head(folder, target)


HALF_TURNED = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}


@pytest.mark.parametrize(
    ("layout", "name", "value", "message"),
    [
        ("eagle3", "rope_scaling", {"rope_type": "dynamic", "factor": 2.0}, "type 'dynamic' are not supported"),
        ("eagle3", "rope_scaling", {"rope_type": "mrope", "mrope_section": [2, 1, 1]}, "type 'mrope' are not"),
        ("eagle3", "rope_parameters", HALF_TURNED, r"json: rotary positions of 0\.5 of each head are not supported"),
        ("eagle3", "rope_theta", "big", r"config\.json: rotary positions cannot be computed from rope_theta and rope"),
        ("eagle3", "rope_scaling", {"rope_type": ["a"]}, "are not supported, only default"),
        ("eagle3", "rms_norm_eps", "small", r"field 'rms_norm_eps': TypeError: .*expected float, got str"),
        (
            "eagle3",
            "num_key_value_heads",
            0,
            r"num_key_value_heads must be a whole number from 1 to 100,000,000, got 0",
        ),
        ("eagle3", "intermediate_size", -1, r"intermediate_size must be a whole number from 1 to 100,000,000, got -1"),
        ("speculators", "transformer_layer_config", [1], "transformer_layer_config must be an object"),
        ("eagle3", "eagle_config", "none", "eagle_config must be an object, got 'none'"),
        ("eagle3", "draft_vocab_size", "many", "draft_vocab_size must be a whole number from 1 to"),
        ("eagle3", "eagle_aux_hidden_state_layer_ids", ["low"], r"ids must be a list of whole numbers, got \['low'\]"),
        ("eagle3", "hidden_act", "gelu", r"config\.json: hidden_act is 'gelu'"),
        ("speculators", "speculators_model_type", "mlp", "speculator of type 'mlp'; eagle drafters read 'eagle' and"),
        ("eagle1", "hidden_size", 32, "hidden_size is 32, but the target's, whose states an EAGLE-1"),
        ("eagle1", "add_para_norm", True, "add_para_norm is True; EAGLE heads with it cannot be computed here"),
        ("speculators", "norm_before_residual", None, "does not say norm_before_residual"),
        ("eagle3", "eagle_aux_hidden_state_layer_ids", [0, 1, 2], "states 0, 1, 2, but this target has 2 layers"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(tmp_path, target, layout, name, value, message):
    config = {"eagle_config": {name: value}} if name.startswith("eagle_aux") else {name: value}
    folder = rewritten(heads.write_head(tmp_path / "head", layout, target), lambda tensors: None, config)
    with pytest.raises(PoolError, match=message):
        read_head(folder, target)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({"eagle_config": None}, (2, 3, 3)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}}, (2, 3, 4)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 3, 3]}}, (2, 3, 3)),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 5]}, (1, 2, 5)),
    ],
)
def test_layers_are_counted_by_either_convention(tmp_path, config, layers):
    target = tiny.llama(1, layers=6)
    folder = rewritten(heads.write_head(tmp_path / "head", "eagle3", target), lambda t: None, config)
    assert read_head(folder, target)[0].layers == layers


def test_files_that_are_none(tmp_path, target):
    with pytest.raises(PoolError, match=r"cannot read .*config\.json"):
        read_head(tmp_path, target)
    folder = heads.write_head(tmp_path / "head", "eagle3", target)
    (folder / "pytorch_model.bin").write_bytes(b"no tensors")
    with pytest.raises(PoolError, match=r"cannot read .*pytorch_model\.bin"):
        read_head(folder, target)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(PoolError, match=r"holds no EAGLE head: it should have config\.json and one of"):
        read_head(folder, target)
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(PoolError, match=r"cannot read .*model\.safetensors: .*; if it is incomplete, get it again"):
        read_head(folder, target)
