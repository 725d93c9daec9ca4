"""Our own forwards of plain decoders, on ONNX Runtime and in PyTorch (as it is, and padded as on a GPU), compute what
those of transformers compute."""

from functools import partial
from itertools import pairwise

import pytest
import torch

from drafters.models.feeds import CHUNK
from drafters.models.onnx_model import ROOM
from drafters.models.target import tree_mask
from drafters.models.torch_model import LEAST_ROOM
from tests import tiny
from tests.plain import DEPTHS, DRAFT, IDS, MODELS, PATHS, SHAPES, VOCAB, made

CLOSE = {"onnx": 2e-5, "torch": 5e-5, "static": 5e-5}
"""How far a runtime may be off, beside a share of 1e-4."""


@pytest.fixture(scope="module", params=CLOSE)
def runtime(request):
    return request.param


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    """A model, a text that fills most of its window, and the model's own forward of it."""
    model = made(request.param)
    ids = torch.randint(0, VOCAB, (600,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.inference_mode():
        whole = model(torch.tensor([ids]), output_hidden_states=True)
    return model, ids, whole


@pytest.fixture(scope="module")
def decoder(case, runtime):
    return tiny.RUNTIMES[runtime](case[0])


@pytest.fixture
def close(runtime):
    return partial(torch.testing.assert_close, rtol=1e-4, atol=CLOSE[runtime])


@pytest.mark.parametrize("cuts", [[], [1, 50, 51, 60], [CHUNK], [CHUNK - 1, CHUNK + 1]], ids=str)
def test_feeding_in_pieces_changes_nothing(case, decoder, close, cuts):
    _, ids, whole = case
    rows = [decoder.forward(ids[a:b], a) for a, b in pairwise([0, *cuts, len(ids)])]
    close(torch.cat(rows), whole.logits[0])


@pytest.mark.parametrize("last", [1, 3, 599])
def test_last_returns_the_last_rows_only(case, decoder, close, last):
    _, ids, whole = case
    close(decoder.forward(ids, 0, last=last), whole.logits[0, -last:])
    close(decoder.forward(ids[590:], 590, last=min(last, 4)), whole.logits[0, -min(last, 4) :])


def test_hidden_states_are_those_of_the_library(case, decoder, close):
    _, ids, whole = case
    for capture, begin in (((2,), 0), ((0, 1, 3), 0), ((2,), 0), ((2,), 570)):
        decoder.forward(ids[begin:], begin, last=1, capture=capture)
        assert set(decoder.captured) == set(capture)
        for layer, states in decoder.captured.items():
            close(torch.as_tensor(states), whole.hidden_states[layer][0, begin:])


@pytest.mark.parametrize("cached", [0, 3, 20, 300])
def test_a_tree_in_one_forward_equals_each_of_its_paths(case, decoder, close, cached):
    model, ids, _ = case
    if cached:
        decoder.forward(ids[:cached], 0, last=1)
    tree = [ids[cached], *DRAFT.tokens]
    scores = decoder.forward(tree, cached, positions=cached + DEPTHS, mask=tree_mask(DRAFT, cached))
    for path in PATHS:
        text = [*ids[: cached + 1], *(DRAFT.tokens[node] for node in path)]
        close(scores[path[-1] + 1], tiny.logits_of(model, text)[-1])
    decoder.keep(cached, [0, 1, 3, 5])
    text = [*ids[: cached + 1], 4, 1, 9, 11]
    close(decoder.forward(text[-1:], len(text) - 1)[0], tiny.logits_of(model, text)[-1])
    # A chain afterwards sees all before it: nothing of the tree's mask is left.
    close(decoder.forward([11, 3, 2, 8, 1, 5], len(text) - 1), tiny.logits_of(model, [*text, 3, 2, 8, 1, 5])[-6:])


@pytest.mark.parametrize(
    ("runtime", "settings"),
    [(name, s) for name in CLOSE for s in SHAPES.values() if name != "onnx" or "head_dim" not in s],
    indirect=["runtime"],
    ids=str,
)
def test_shapes_of_llamas(runtime, close, settings):
    model = tiny.llama(1, **settings)
    close(tiny.RUNTIMES[runtime](model).forward(IDS, 0), tiny.logits_of(model, IDS))


def test_feeding_at_an_earlier_position_rolls_the_cache_back(runtime, close):
    model = tiny.llama(1)
    decoder = tiny.RUNTIMES[runtime](model)
    decoder.forward([*IDS[:6], 1, 1, 1, 1], 0)
    close(decoder.forward(IDS[6:], 6), tiny.logits_of(model, IDS)[6:])


def test_the_cache_grows_with_the_context(runtime, close):
    model, room = made("llama"), ROOM if runtime == "onnx" else LEAST_ROOM
    decoder, ids = tiny.RUNTIMES[runtime](model), [i % VOCAB for i in range(room + 3)]
    twin = decoder.twin()
    twin.forward(IDS, 0)
    decoder.forward(ids[: room - 1], 0, last=1)
    rows = [decoder.forward(ids[at : at + 1], at)[0] for at in range(room - 1, room + 3)]
    close(torch.stack(rows), tiny.logits_of(model, ids)[-4:])
    close(twin.forward([5], len(IDS)), tiny.logits_of(model, [*IDS, 5])[-1:])


def test_the_window_is_held(runtime):
    decoder = tiny.RUNTIMES[runtime](tiny.llama(1, window=8))
    assert decoder.window == 8
    decoder.forward([1] * 8, 0)
    with pytest.raises(ValueError, match="9 tokens exceed the context window of 8"):
        decoder.forward([1], 8)


def test_a_result_outlives_the_next_forward(runtime):
    decoder = tiny.RUNTIMES[runtime](tiny.llama(1))
    first = decoder.forward([3, 4], 0, capture=(1,))
    states = torch.as_tensor(decoder.captured[1])
    before = first.clone(), states.clone()
    decoder.forward([5, 6], 0, capture=(1,))
    assert torch.equal(first, before[0]) and torch.equal(states, before[1])


def test_tokens_that_a_smaller_vocabulary_lacks_stand_as_its_last_one(runtime, close):
    decoder = tiny.RUNTIMES[runtime](tiny.llama(1))
    close(decoder.forward([3, tiny.VOCAB + 5], 0), decoder.forward([3, tiny.VOCAB - 1], 0))
