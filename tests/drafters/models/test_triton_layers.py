"""Triton's kernels compute what PyTorch's do: on a GPU, or where there is none in Triton's interpreter."""

import logging

import pytest
import torch

from drafters.kinds.lm import LMDrafter
from drafters.models import torch_model, triton_layers
from drafters.models.decoder import DraftOptions
from drafters.models.feeds import DraftFeed
from drafters.models.target import tree_mask
from drafters.models.torch_decoder import TorchDecoder, TorchGroup
from drafters.models.torch_layers import TorchKernels
from drafters.models.torch_weights import weights_of
from drafters.models.triton_layers import TritonKernels, difference, kernels_for
from drafters.sampling import SamplingParams
from tests import tiny
from tests.plain import (
    DEPTHS,
    DRAFT,
    IDS,
    MODELS,
    PATHS,
    SHAPES,
    VOCAB,
    check_texts_run_together,
    check_two_chains_by_turns,
    close,
    made,
)  # fmt: skip

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LAYERS = 2
"""Of the models: the interpreter takes its time for each."""


def few(cases):
    """All on a GPU; the interpreter takes seconds for each, so that on a CPU the first is enough for every day."""
    first, *others = cases
    return [first, *(each if DEVICE == "cuda" else pytest.param(each, marks=pytest.mark.long) for each in others)]


FEW = few(MODELS if DEVICE == "cuda" else ["sliding mistral", "qwen3"])
SAMPLED = {"greedy": SamplingParams(), "sampled": SamplingParams(temperature=1.0, top_k=5)}


@pytest.fixture(autouse=True)
def fused(monkeypatch):
    monkeypatch.setattr(torch_model, "kernels_for", lambda weights, rotary: TritonKernels)


def read(decoder, ids):
    """What others have tested, by PyTorch's kernels: the interpreter takes long for many tokens."""
    stack = decoder.runs.stack
    stack.kernels = TorchKernels
    decoder.forward(ids, 0, last=1)
    stack.kernels = TritonKernels


def on_device(model):
    """The model's copy where the kernels run, and itself on the CPU, which says what is right."""
    copy = type(model)(model.config).eval()
    copy.load_state_dict(model.state_dict())
    return copy.to(DEVICE), model


@pytest.mark.parametrize("dtype", few([torch.float32, torch.float16, torch.bfloat16]))
@pytest.mark.parametrize("name", FEW)
def test_the_two_kinds_of_kernels_agree(name, dtype):
    if dtype == torch.bfloat16 and DEVICE == "cpu":
        pytest.skip("the interpreter has no products of bfloat16")
    model = made(name).to(DEVICE, dtype)
    assert difference(weights_of([model]), model.model.rotary_emb) < (1e-5 if dtype == torch.float32 else 0.02)


@pytest.mark.parametrize("static", [False, True], ids=["as it is", "padded"])
@pytest.mark.parametrize("name", FEW)
def test_chains_and_trees_are_scored_as_by_the_library(name, static):
    copy, model = on_device(made(name, layers=LAYERS))
    decoder, text = TorchDecoder(copy, static=static), [*IDS, 5, 6, 2]
    close(decoder.forward(IDS, 0), tiny.logits_of(model, IDS))
    close(decoder.forward([5, 6, 2], len(IDS)), tiny.logits_of(model, text)[-3:])
    tree = len(text) + DEPTHS, tree_mask(DRAFT, len(text))
    scores = decoder.forward([4, *DRAFT.tokens], len(text), positions=tree[0], mask=tree[1])
    for path in PATHS:
        close(scores[path[-1] + 1], tiny.logits_of(model, [*text, 4, *(DRAFT.tokens[node] for node in path)])[-1])


@pytest.mark.parametrize("name", few(SHAPES))
def test_shapes_of_llamas(name):
    copy, model = on_device(tiny.llama(1, **SHAPES[name]))
    decoder = TorchDecoder(copy, static=True)
    decoder.forward(IDS, 0, last=1)
    close(decoder.forward([3, 4, 5], len(IDS)), tiny.logits_of(model, [*IDS, 3, 4, 5])[-3:])


def test_long_texts_are_read_in_parts(monkeypatch):
    """Several programs divide what is cached among them, and some of them find nothing there."""
    monkeypatch.setattr(triton_layers, "_multiprocessors", lambda device: 64)
    ids = [1 + i % 90 for i in range(150)]
    for copy, exact in (on_device(made("sliding mistral", layers=LAYERS)), on_device(made("qwen3", layers=LAYERS))):
        decoder = TorchDecoder(copy, static=True)
        read(decoder, ids[:147])
        close(decoder.forward(ids[147:], 147), tiny.logits_of(exact, ids)[-3:])


def test_a_tree_of_more_nodes_than_a_program_has_rows():
    copy, model = on_device(made("partly sliding qwen2", layers=LAYERS))
    check_two_chains_by_turns(TorchDecoder(copy, static=True), model, 20, read)


def test_texts_of_one_model_are_run_together():
    copy, model = on_device(made("sliding mistral", layers=LAYERS))
    check_texts_run_together(TorchDecoder(copy, static=True), model, read)


@pytest.mark.parametrize("kind", FEW)
def test_a_group_computes_what_its_models_compute_alone(kind):
    copies, models = zip(*(on_device(made(kind, seed, LAYERS)) for seed in range(2)), strict=True)
    group, ids = TorchGroup(copies, static=True), IDS[:8]
    expected = torch.stack([tiny.logits_of(model, [*ids, 5, 6]) for model in models])
    close(group.forward(ids, [0, 0], last=3), expected[:, 5:8])
    close(group.forward([*ids, 5, 6], [8, 6], last=2), expected[:, -2:])
    close(group.decoders[1].forward([5, 6], 8), expected[1, -2:])


def test_drafts_are_those_of_pytorch_s_kernels(monkeypatch):
    model, context = tiny.llama(1), tiny.prompts(1, seed=6, shortest=20, longest=20)[0]
    copy, _ = on_device(model)
    found = LMDrafter("one", TorchDecoder(copy, static=True), tiny.VOCAB)
    monkeypatch.setattr(torch_model, "kernels_for", lambda weights, rotary: TorchKernels)
    expected = LMDrafter("one", TorchDecoder(model, static=False), tiny.VOCAB)
    for end, params in ((20, SAMPLED["greedy"]), (5, SAMPLED["sampled"])):
        drafts = [
            each.propose(context[:end], 3, params, torch.Generator(device).manual_seed(end))
            for each, device in ((found, DEVICE), (expected, "cpu"))
        ]
        assert params.greedy or DEVICE == "cpu" or len(drafts[0]) == 3  # GPUs draw other numbers
        assert drafts[0].tokens == drafts[1].tokens or (DEVICE == "cuda" and not params.greedy)


@pytest.mark.parametrize("how", few(SAMPLED))
def test_texts_are_drafted_together_each_by_a_model_of_its_own(how):
    """Two texts of one model, one of the other, in any slots; all as each model drafts alone."""
    params = SAMPLED[how]
    copies, models = zip(*(on_device(made("qwen3", seed, LAYERS)) for seed in range(2)), strict=True)
    group = TorchGroup(copies, static=True)
    slots = [group.decoders[0].runs.take_slot() for _ in range(3)]
    contexts = tiny.prompts(3, seed=2, shortest=2, longest=4)
    whose = [1, 0, 1]

    def options(seed, device):
        return DraftOptions(2, params, torch.Generator(device).manual_seed(seed), VOCAB, with_q=True)

    drafts = group.decoders[0].runs.drafts
    for _ in range(2 if DEVICE == "cuda" else 1):  # which records it
        asked = [
            (model, DraftFeed(slot, ids, 0, options(slot, DEVICE)))
            for model, slot, ids in zip(whose, slots, contexts, strict=True)
        ]
        found = drafts.run(asked)
    assert [call.model for call in group.decoders[0].runs.stack._programs] == [None]
    for model, slot, ids, draft in zip(whose, slots, contexts, found, strict=True):
        alone = TorchDecoder(models[model], static=False).draft(ids, 0, options(slot, "cpu"))
        if params.greedy or DEVICE == "cpu":  # GPUs draw other numbers
            assert draft.tokens == alone.tokens
            torch.testing.assert_close(draft.q.cpu(), alone.q, rtol=1e-3, atol=1e-5)
    assert len(drafts.run(asked[1:2])) == 1
    assert [call.model for call in group.decoders[0].runs.stack._programs] == [None, 0]  # one text alone: its model


# Which are used.


class Elsewhere:
    """Weights that seem to lie on a GPU."""

    def __init__(self, weights):
        self.embedding = type("Embedding", (), {"is_cuda": True, "dtype": weights.embedding.dtype})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (1e-6, None),
        (0.3, "they differ by 30.0% from PyTorch's"),
        (RuntimeError("no compiler\nmore"), "RuntimeError: no"),
    ],
)
def test_kernels_that_fail_or_err_are_not_used(monkeypatch, caplog, found, said):
    def differ(weights, rotary):
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(triton_layers, "difference", differ)
    with caplog.at_level(logging.WARNING):
        assert kernels_for(Elsewhere(weights_of([tiny.llama()])), None) is (TorchKernels if said else TritonKernels)
    assert [said in record.getMessage() for record in caplog.records] == [True] * bool(said)


def test_on_a_cpu_and_without_triton_pytorch_s_are_used(monkeypatch):
    weights = weights_of([tiny.llama()])
    assert kernels_for(weights, None) is TorchKernels
    monkeypatch.setattr(triton_layers, "triton", None)
    assert kernels_for(Elsewhere(weights), None) is TorchKernels
