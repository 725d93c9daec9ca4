"""Medusa and BPD heads: checkpoints as they are published, drafts against brute force, the engine's output."""

import functools
import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from drafters import medusa
from drafters.base import Evidence
from drafters.card import Card
from drafters.medusa import MedusaDrafter
from drafters.medusa_heads import load_heads, save_bpd, save_medusa
from drafters.ngram import count_ngrams
from drafters.pool import Pool
from multidraft.engine import generate
from multidraft.errors import PoolError
from multidraft.sampling import SamplingParams, probabilities
from multidraft.target import Target
from multidraft.verify import verify
from tests import tiny
from tests.multidraft.test_verify import ALPHA, p_value

HIDDEN, INNER, HEADS = 24, 20, 3
GREEDY = SamplingParams()
PROMPTS = tiny.prompts(3, seed=3, longest=12)


def drawn(seed, **shapes):
    """Tensors of these shapes; matrices larger than biases, so that distributions are peaked."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * (2.0 / math.sqrt(HIDDEN) if len(shape) > 1 else 0.2)
        for name, shape in shapes.items()
    }


def medusa_tensors(layers=1, hidden=HIDDEN, vocab=tiny.VOCAB):
    shapes = {}
    for head in range(HEADS):
        for layer in range(layers):
            shapes[f"{head}.{layer}.linear.weight"] = (hidden, hidden)
            shapes[f"{head}.{layer}.linear.bias"] = (hidden,)
        shapes[f"{head}.{layers}.weight"] = (vocab, hidden)
    return drawn(layers, **shapes)


def bpd_tensors():
    shapes = {}
    for head in range(HEADS):
        shapes |= {f"{head}.up.weight": (INNER, HIDDEN), f"{head}.up.bias": (INNER,)}
        shapes |= {f"{head}.down.weight": (HIDDEN, INNER), f"{head}.down.bias": (HIDDEN,)}
    return drawn(9, **shapes)


def write_medusa(folder, tensors, layers=1, file="medusa_lm_head.pt", prefix=""):
    """A folder as the public ones are: the configuration speaks of two heads, whatever there are."""
    folder.mkdir(exist_ok=True)
    named = {prefix + name: tensor for name, tensor in tensors.items()}
    save_file(named, folder / file) if file.endswith("safetensors") else torch.save(named, folder / file)
    config = {"base_model_name_or_path": "lmsys/vicuna-7b-v1.3", "medusa_num_heads": 2, "medusa_num_layers": layers}
    (folder / "config.json").write_text(json.dumps({**config, "transformers_version": "4.31.0"}))
    return folder


def write_bpd(folder, tensors):
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    config = {"bpd_num_heads": HEADS, "hidden_size": HIDDEN, "intermediate_size": INNER}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def plain_logits(tensors, target, hidden, head):
    """By the definitions, one row and one head at a time."""
    rows = []
    for x in hidden:
        if "0.up.weight" in tensors:
            inner = (tensors[f"{head}.up.weight"] @ x + tensors[f"{head}.up.bias"]).clamp(min=0.0)
            x = x + tensors[f"{head}.down.weight"] @ inner + tensors[f"{head}.down.bias"]
            bias = target.lm_head.bias
            rows.append(target.lm_head.weight @ x + (0.0 if bias is None else bias))
            continue
        layer = 0
        while (weight := tensors.get(f"{head}.{layer}.linear.weight")) is not None:
            y = weight @ x + tensors[f"{head}.{layer}.linear.bias"]
            x, layer = x + y / (1.0 + torch.exp(-y)), layer + 1
        rows.append(tensors[f"{head}.{layer}.weight"] @ x)
    return torch.stack(rows).detach()


def last_states(model, ids):
    with torch.inference_mode():
        return model(torch.tensor([list(ids)]), output_hidden_states=True).hidden_states[-1][0]


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


@pytest.mark.parametrize("kind", ["medusa", "bpd"])
def test_large_output_layers(tmp_path, kind):
    """Large matrices are multiplied in another way (:class:`~multidraft.projection.Projection`)."""
    model, tensors = tiny.llama(1, vocab=7000), medusa_tensors(vocab=7000) if kind == "medusa" else bpd_tensors()
    folder = write_medusa(tmp_path, tensors) if kind == "medusa" else write_bpd(tmp_path, tensors)
    agrees(load_heads(kind, folder, model), tensors, model)


def test_what_is_saved_is_read_again(model, tmp_path):
    save_medusa(tmp_path / "medusa", medusa_tensors(2), "someone/something")
    agrees(load_heads("medusa", tmp_path / "medusa", model), medusa_tensors(2), model)
    config = json.loads((tmp_path / "medusa/config.json").read_text())
    assert config == {
        "base_model_name_or_path": "someone/something",
        "medusa_num_heads": HEADS,
        "medusa_num_layers": 2,
    }
    save_bpd(tmp_path / "bpd", bpd_tensors())
    agrees(load_heads("bpd", tmp_path / "bpd", model), bpd_tensors(), model)


def test_heads_take_the_targets_number_type(model, tmp_path):
    half = tiny.llama(1).to(torch.bfloat16)
    heads = load_heads("medusa", write_medusa(tmp_path, medusa_tensors()), half)
    assert heads.logits(torch.zeros(1, HIDDEN, dtype=torch.bfloat16), 2).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="no such kind of heads: 'hydra'"):
        load_heads("hydra", tmp_path, model)


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
        ("bpd", "config.json", b'{"bpd_num_heads": 0}', "bpd_num_heads must be a whole number of at least 1, got 0"),
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


# Drafts.

SETTINGS = {
    "chain": {},
    "chain, confident": {"confidence": 0.3},
    "tree": {"nodes": 12, "branches": 4},
    "small tree": {"nodes": 3, "branches": 5},
    "tree, confident": {"nodes": 12, "branches": 6, "confidence": 0.1},
    "rescored chain": {"rescored": True, "branches": 5, "weight": 0.8},
    "rescored tree": {"rescored": True, "nodes": 12, "branches": 4, "weight": 0.8},
    "rescored tree, confident": {"rescored": True, "nodes": 12, "branches": 6, "confidence": 0.1},
}


@pytest.fixture(scope="module")
def rescorer(model):
    return count_ngrams([tiny.greedy(model, prompt, 30) for prompt in tiny.prompts(6, seed=8)], tiny.VOCAB)


@pytest.fixture(params=["medusa", "bpd"], scope="module")
def heads(request, model, tmp_path_factory):
    """Heads, and tensors to compute the same plainly from."""
    folder = tmp_path_factory.mktemp("heads")
    if request.param == "medusa":
        return load_heads("medusa", write_medusa(folder, medusa_tensors()), model), medusa_tensors()
    return load_heads("bpd", write_bpd(folder, bpd_tensors()), model), bpd_tensors()


def make_drafter(heads, source, rescorer, *, rescored=False, **settings):
    return MedusaDrafter("heads", heads, source, tiny.VOCAB, rescorer=rescorer if rescored else None, **settings)


def draft_of(drafter, context, length=HEADS, params=GREEDY):
    return drafter.propose(context, length, params, torch.Generator())


def paths_of(draft):
    paths = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths


class Plain:
    """Drafts by their definition, over all paths."""

    def __init__(self, model, tensors, rescorer, *, rescored=False, nodes=None, branches=8, confidence=0.0, weight=0.3):
        self.model, self.tensors, self.rescorer = model, tensors, rescorer if rescored else None
        self.nodes, self.branches, self.confidence, self.weight = nodes, branches, confidence, weight
        self.log_probabilities = functools.cache(self.log_probabilities)

    def log_probabilities(self, known, head):
        logits = plain_logits(self.tensors, self.model, last_states(self.model, known)[-1:], head)[0]
        return torch.log_softmax(logits.double(), dim=-1).tolist()

    def shares(self, context, depth, path):
        """Candidates and their probabilities after ``path``."""
        log = self.log_probabilities(tuple(context[:-1]), depth)
        top = sorted(range(tiny.VOCAB), key=lambda token: -log[token])[: self.branches]
        if self.rescorer is None:
            return {token: math.exp(log[token]) for token in top}
        text = [*context, *path]
        scores = {
            t: math.exp(log[t]) * math.exp(self.rescorer.log_probabilities(text[-2:], [t])[0]) ** self.weight
            for t in top
        }
        mass = sum(math.exp(log[token]) for token in top)
        return {token: score * mass / sum(scores.values()) for token, score in scores.items()}

    def paths(self, context, length):
        depth = min(length, HEADS)
        if len(context) < 2:
            return []
        if self.nodes is None:
            path, product = (), 1.0
            while len(path) < depth and product >= self.confidence:
                shares = self.shares(context, len(path), path)
                best = max(shares, key=shares.get)
                path, product = (*path, best), product * shares[best]
            return [path[: i + 1] for i in range(len(path))]
        products, level = {}, {(): 1.0}
        for d in range(depth):
            level = {
                (*path, token): product * share
                for path, product in level.items()
                for token, share in self.shares(context, d, path).items()
            }
            products |= level
        ranked = sorted(products, key=lambda path: (len(path) > 1, -products[path]))
        sure = [path for path in ranked if products[path] >= self.confidence]
        return (sure or ranked[:1])[: self.nodes]


@pytest.mark.parametrize("length", [2, HEADS + 3])
@pytest.mark.parametrize("setting", SETTINGS)
def test_drafts_are_what_they_are_defined_to_be(model, heads, rescorer, setting, length):
    network, tensors = heads
    drafter = make_drafter(network, Target(model), rescorer, **SETTINGS[setting])
    plain = Plain(model, tensors, rescorer, **SETTINGS[setting])
    assert drafter.kind == network.kind and drafter.parameter_count == network.parameter_count
    for context in [*PROMPTS, *tiny.prompts(2, seed=5, shortest=2)]:
        for params in (GREEDY, SamplingParams(temperature=0.7)):
            draft = draft_of(drafter, context, length, params)
            assert draft.q is None and not draft.sampled
            assert sorted(paths_of(draft)) == sorted(plain.paths(context, length))


def test_without_a_state_or_a_length_there_is_no_draft(model, heads, rescorer):
    drafter = make_drafter(heads[0], Target(model), rescorer)
    assert len(draft_of(drafter, [3])) == len(draft_of(drafter, [3, 4], 0)) == 0
    assert len(draft_of(drafter, [3, 4], 1)) == 1
    assert drafter.acceptances([3], 1, 3).tolist() == [] and drafter.acceptances([3, 4], 1, 3).tolist() == [0]
    assert drafter.gamma(Evidence([3, 4], 1, None, GREEDY)).tolist() == [0.0]


def test_a_weight_of_zero_changes_nothing(model, heads, rescorer):
    plain = make_drafter(heads[0], Target(model), None, nodes=9)
    rescored = make_drafter(heads[0], Target(model), rescorer, nodes=9, rescored=True, weight=0.0)
    for context in PROMPTS:
        assert draft_of(plain, context) == draft_of(rescored, context)


def test_tokens_beyond_the_vocabulary_are_not_proposed(model, heads):
    drafter = MedusaDrafter("heads", heads[0], Target(model), 3, nodes=40, branches=8)
    for context in PROMPTS:
        assert set(draft_of(drafter, context).tokens) == {0, 1, 2}


@pytest.mark.parametrize("chunk", [3, 64])
@pytest.mark.parametrize("setting", SETTINGS)
def test_gamma_and_acceptances_are_those_of_drafts_that_are_verified(
    model, heads, rescorer, outputs, setting, chunk, monkeypatch
):
    monkeypatch.setattr(medusa, "CHUNK", chunk)
    network, _ = heads
    target = Target(model)
    drafter = make_drafter(network, target, rescorer, **SETTINGS[setting])
    sampled, accepted_any = SamplingParams(temperature=1.0), False
    single = (1, PROMPTS[0][:1], tiny.greedy(model, PROMPTS[0][:1], 20))
    for start, prompt, output in (single, (4, PROMPTS[1], outputs[1]), (30, PROMPTS[2], outputs[2])):
        context = [*prompt, *output]
        reader = make_drafter(network, Target(model), rescorer, **SETTINGS[setting])
        accepted, hits, masses, rows = [], [], [], []
        for s in range(max(start, len(prompt)), len(context)):
            target.prefill(context[:s])
            draft = draft_of(drafter, context[:s])
            logits = target.score(draft)
            path = verify(draft, logits, GREEDY, torch.Generator()).path
            accepted.append(min(len(path), len(context) - s))
            hits.append(float(bool(path)))
            rows.append(probabilities(logits[0], sampled))
            masses.append(float(rows[-1][[draft.tokens[child] for child in draft.children(-1)]].sum()))
        start = len(context) - len(accepted)
        found = reader.acceptances(context, start, HEADS)
        assert found.dtype == np.int64 and found.tolist() == accepted
        assert reader.gamma(Evidence(context, start, None, GREEDY)).tolist() == hits
        gamma = reader.gamma(Evidence(context, start, torch.stack(rows), sampled))
        assert gamma == pytest.approx(masses, abs=1e-5)
        accepted_any |= any(accepted)
    assert accepted_any


# Through the engine.


def pool_of(model, heads, rescorer, *, lean=None, **settings):
    target = Target(model, lean=lean)
    card = Card.model_validate(
        {"name": "tiny", "title": "", "target": {"path": "."}, "drafters": [{"name": "lookup", "kind": "pld"}]}
    )
    return Pool(target, [make_drafter(heads, target, rescorer, **settings)], tiny.tokenizer(), card)


@pytest.fixture(scope="module")
def outputs(model):
    """What the target answers to ``PROMPTS``."""
    return [tiny.greedy(model, prompt, 30) for prompt in PROMPTS]


@pytest.mark.parametrize("lean", [True, False])
@pytest.mark.parametrize("setting", ["chain", "tree", "rescored chain", "rescored tree, confident"])
def test_greedy_output_is_that_of_transformers(model, heads, rescorer, outputs, setting, lean):
    pool = pool_of(model, heads[0], rescorer, lean=lean, **SETTINGS[setting])
    rounds = []
    for prompt, expected in zip(PROMPTS, outputs, strict=True):
        for policy, length in (("fixed:heads", 1), ("fixed:heads", 4), ("normal-hedge", 4)):
            out = generate(pool, prompt, policy, SamplingParams(30, draft_length=length))
            assert out.token_ids == expected
            rounds += out.rounds
    assert any(r.accepted for r in rounds) and any(r.accepted < len(r.drafted) for r in rounds)


@pytest.fixture(scope="module")
def exact(model):
    """Probability of each output of three tokens after ``PROMPTS[1]``."""
    params = SamplingParams(3, temperature=2.0, top_k=6, draft_length=3)
    outputs = {(): 1.0}
    for _ in range(3):
        longer = {}
        for output, mass in outputs.items():
            row = probabilities(tiny.logits_of(model, [*PROMPTS[1], *output])[-1], params).double()
            longer |= {(*output, token): mass * float(p) for token, p in enumerate(row) if p > 0.0}
        outputs = longer
    return params, outputs


@pytest.mark.parametrize("setting", ["chain", "tree", "rescored tree"])
def test_sampled_output_is_distributed_as_the_targets(model, heads, rescorer, exact, setting):
    params, expected = exact
    pool, counts, accepted = pool_of(model, heads[0], rescorer, **SETTINGS[setting]), Counter(), 0
    for seed in range(400):
        out = generate(pool, PROMPTS[1], "fixed:heads", params, seed)
        accepted += sum(r.accepted for r in out.rounds)
        counts[tuple(out.token_ids)] += 1
    assert accepted
    assert p_value(counts, expected) > ALPHA
