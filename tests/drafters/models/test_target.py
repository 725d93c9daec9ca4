"""The target's cache is never seen: every score equals a forward over the whole context."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.draft import Draft
from drafters.errors import ContextWindowError
from drafters.models.onnx_decoder import OnnxDecoder
from drafters.models.runtimes import HubDecoder
from drafters.models.target import Target, tree_mask
from drafters.models.torch_decoder import TorchDecoder
from tests import tiny
from tests.engine_cases import paths_of


def target_of(kind):
    name, runtime = kind.split(":")
    model = tiny.llama(1) if name == "llama" else tiny.causal_lm(name, 1)
    return Target(model, tiny.RUNTIMES[runtime](model))


@pytest.fixture(scope="module")
def targets():
    return {kind: target_of(kind) for kind in tiny.KINDS_BY_RUNTIME}


def check_scores(target, context, draft):
    """Score ``draft`` and compare every row with a forward over context and path."""
    logits = target.score(draft)
    assert logits.shape == (len(draft) + 1, tiny.VOCAB)
    expected = [tiny.logits_of(target.model, [*context, *path])[-1] for path in ((), *paths_of(draft))]
    torch.testing.assert_close(logits, torch.stack(expected), rtol=1e-4, atol=1e-4)


TOKENS = st.integers(0, tiny.VOCAB - 1)


@st.composite
def drafts(draw, most=6):
    """Any tree, chains and bushes alike."""
    tokens = draw(st.lists(TOKENS, max_size=most))
    if draw(st.booleans()):
        return Draft.chain(tokens)
    return Draft(tuple(tokens), tuple(draw(st.integers(-1, node - 1)) for node in range(len(tokens))))


@st.composite
def dialogues(draw):
    """A prompt, then rounds of a draft, an accepted path of it, and the target's own token."""
    rounds = []
    for _ in range(draw(st.integers(1, 4))):
        draft = draw(drafts())
        path, node = [], -1
        while (children := draft.children(node)) and draw(st.booleans()):
            node = draw(st.sampled_from(children))
            path.append(node)
        rounds.append((draft, tuple(path), draw(TOKENS)))
    return draw(st.lists(TOKENS, min_size=1, max_size=12)), rounds


@pytest.mark.parametrize("kind", tiny.KINDS_BY_RUNTIME)
@settings(max_examples=10)
@given(dialogue=dialogues())
def test_every_score_equals_a_forward_without_cache(kind, targets, dialogue):
    target = targets[kind]
    prompt, rounds = dialogue
    target.prefill(prompt)
    context = list(prompt)
    for draft, path, own in rounds:
        assert target.context_length == len(context)
        check_scores(target, context, draft)
        target.accept(path, own)
        context += [draft.tokens[node] for node in path] + [own]
    assert target.context_length == len(context)


@pytest.mark.parametrize("kind", tiny.KINDS_BY_RUNTIME)
def test_a_prompt_of_one_token(kind, targets):
    targets[kind].prefill([5])
    check_scores(targets[kind], [5], Draft.chain([3, 4]))


@pytest.mark.parametrize("kind", ["mistral:onnx", "mistral:torch", "mistral:static", "mistral:hub", "gemma2:hub"])
def test_a_tree_beyond_the_sliding_window(kind, targets):
    """Twenty tokens, of which a layer sees six: a node's ancestors count towards them, its siblings do not."""
    target = targets[kind]
    context = tiny.prompts(1, seed=3, shortest=20, longest=20)[0]
    target.prefill(context)
    draft = Draft((3, 4, 5, 6, 7, 8, 9, 2), (-1, -1, 0, 0, 2, 4, 5, 6))
    check_scores(target, context, draft)
    target.accept((0, 2, 4, 5), 10)
    check_scores(target, [*context, 3, 5, 7, 8, 10], Draft((1, 2), (-1, -1)))


def test_prefill_forgets_the_previous_query(targets):
    for target in targets.values():
        target.prefill([1, 2, 3, 4, 5])
        target.score(Draft.chain([6, 7]))
        target.prefill([9, 8])
        check_scores(target, [9, 8], Draft.empty())


@pytest.mark.parametrize("runtime", tiny.RUNTIMES)
def test_the_context_window_can_be_filled_to_the_last_token(runtime):
    model = tiny.llama(1, window=16)
    target = Target(model, tiny.RUNTIMES[runtime](model))
    assert target.window == 16
    context = [1 + i % 9 for i in range(10)]
    target.prefill(context)
    draft = Draft.chain([3, 4, 5, 6, 7, 8])
    check_scores(target, context, draft)
    target.accept((0, 1, 2, 3, 4), 9)
    assert target.context_length == 16


@pytest.mark.parametrize("length", [16, 17, 100])
def test_a_prompt_that_leaves_no_room_is_refused(length):
    target = Target(tiny.llama(1, window=16))
    with pytest.raises(ContextWindowError, match=rf"{length} tokens.* holds 16 .*at most 15 tokens"):
        target.prefill([1] * length)


def test_wrong_use_is_named():
    target = Target(tiny.llama(1))
    with pytest.raises(RuntimeError, match="prefill"):
        target.score(Draft.empty())
    with pytest.raises(ValueError, match="at least one token"):
        target.prefill([])


def test_each_model_runs_on_the_fastest_runtime_that_it_has():
    def runtime(model):
        return type(Target(model).decoder)

    for kind in ("qwen2", "qwen3", "mistral"):
        assert runtime(tiny.causal_lm(kind)) is OnnxDecoder
    assert runtime(tiny.llama(attention_bias=True)) is OnnxDecoder
    assert runtime(tiny.llama().to(torch.bfloat16)) is TorchDecoder
    assert runtime(tiny.causal_lm("gpt2")) is HubDecoder


def test_what_a_node_sees():
    draft = Draft((1, 2, 3, 4), (-1, 0, 0, 2))
    seen = tree_mask(draft, 2).int().tolist()
    assert seen == [
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0, 1, 0],
        [1, 1, 1, 1, 0, 1, 1],
    ]
