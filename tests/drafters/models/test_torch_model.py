"""What a GPU does with a model, without a GPU: drafts in one piece, nothing that no graph could record, few kernels."""

from collections import Counter
from functools import partial

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache, StaticCache

from drafters.draft import Draft
from drafters.kinds.lm import LMDrafter, make_lm_drafters
from drafters.models.decoder import DraftOptions
from drafters.models.feeds import DraftFeed
from drafters.models.runtimes import HubDecoder
from drafters.models.target import Target, tree_mask
from drafters.models.torch_decoder import TorchDecoder, TorchGroup
from drafters.models.torch_model import WIDTHS
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from tests import tiny
from tests.engine_cases import GREEDY, SAMPLED, check_greedy, pool_of
from tests.plain import DEPTHS, DRAFT, MODELS, made
from tests.world import verify_elsewhere

SAMPLING = {
    "greedy": SamplingParams(),
    "hot": SamplingParams(temperature=1.3),
    "top-k": SamplingParams(temperature=0.9, top_k=5),
    "top-p": SamplingParams(temperature=1.1, top_p=0.8),
}
PROMPT = tiny.prompts(1, seed=4, shortest=9)[0]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def drafts_of(decoder, context, params=SAMPLING["greedy"], confidence=0.0, vocab=tiny.VOCAB):
    drafter, generator = LMDrafter("one", decoder, vocab, confidence=confidence), seeded()
    return [drafter.propose(context[:end], 6, params, generator, with_q=True) for end in range(3, len(context), 4)]


@pytest.mark.parametrize("confidence", [0.0, 0.3])
@pytest.mark.parametrize("params", SAMPLING.values(), ids=SAMPLING.keys())
@pytest.mark.parametrize("vocab", [tiny.VOCAB, tiny.VOCAB + 3, tiny.VOCAB - 2])
def test_a_draft_in_one_piece_is_the_draft_step_by_step(params, confidence, vocab):
    model, context = tiny.llama(1), tiny.prompts(1, seed=6, shortest=20, longest=24, vocab=10)[0]
    expected = drafts_of(TorchDecoder(model, static=False), context, params, confidence, vocab)
    found = drafts_of(TorchDecoder(model, static=True), context, params, confidence, vocab)
    for draft, other in zip(found, expected, strict=True):
        assert draft.tokens == other.tokens and draft.sampled == other.sampled == (not params.greedy)
        torch.testing.assert_close(draft.q, other.q, rtol=1e-3, atol=1e-5)
    assert not confidence or not params.greedy or len({len(draft) for draft in found}) > 1


@pytest.mark.parametrize("name", MODELS)
def test_greedy_drafts_are_the_library_s(name):
    model = made(name)
    decoder = TorchDecoder(model, static=True)
    context = [5, 3, 8, 1, 9, 12, 4]
    draft = decoder.draft(context, 0, DraftOptions(5, SAMPLING["greedy"], seeded(), 97))
    assert list(draft.tokens) == tiny.greedy(model, context, 5) and draft.q is None


def test_a_cold_drafter_reads_a_long_context_first():
    model, context = tiny.llama(1, window=400), [1 + i % 9 for i in range(200)]
    drafter = LMDrafter("one", TorchDecoder(model, static=True), tiny.VOCAB)
    assert list(drafter.propose(context, 4, GREEDY, seeded()).tokens) == tiny.greedy(model, context, 4)
    assert {call.width for call in drafter.model.runs.stack._programs} == {1}  # the rest was read before the draft


def test_drafts_of_several_texts_are_made_together():
    model = tiny.llama(1)
    first = TorchDecoder(model, static=True)
    twins, contexts = [first.twin(), first.twin()], tiny.prompts(3, seed=8, shortest=5, longest=20)
    params = SamplingParams(temperature=1.0)

    def feed(slot, length, params):
        return DraftFeed(slot, contexts[slot], 0, DraftOptions(length, params, seeded(slot), tiny.VOCAB, with_q=True))

    feeds = [feed(0, 5, params), feed(2, 3, params), feed(1, 4, SAMPLING["greedy"])]
    found = first.runs.drafts.run([(0, asked) for asked in feeds])
    del twins
    for asked, draft in zip(feeds, found, strict=True):
        alone = LMDrafter("one", TorchDecoder(model, static=False), tiny.VOCAB)
        expected = alone.propose(asked.ids, asked.options.length, asked.options.params, seeded(asked.slot), with_q=True)
        assert draft.tokens == expected.tokens
        torch.testing.assert_close(draft.q, expected.q, rtol=1e-3, atol=1e-5)


def test_forwards_of_one_shape_share_a_program():
    decoder = TorchDecoder(tiny.llama(1), static=True)
    for start in range(0, 50, 5):
        decoder.forward([1, 2, 3, 4, 5], start)
        decoder.forward([1, 2, 3, 4, 5, 6], start)
    assert [call.width for call in decoder.runs.stack._programs] == [8]
    for length in range(1, 60):
        decoder.forward([1] * length, 0)
    assert {call.width for call in decoder.runs.stack._programs} == set(WIDTHS)


# Nothing is asked of the device but tokens.

ASKING = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__", "nonzero")


class Waits(TorchFunctionMode):
    """Counts what makes the host wait for the device: numbers that are looked at."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name in ASKING:
            self.found[name] += 1
        return function(*args, **(kwargs or {}))


def waits(call):
    with Waits() as counted:
        result = call()
    return sum(counted.found.values()), result


def test_the_count_of_waits_counts():
    tensor = torch.tensor([1.0, 2.0])
    for call in (lambda: float(tensor[0]), lambda: bool(tensor[0]), tensor.tolist, tensor.numpy, tensor[0].item):
        assert waits(call)[0] == 1
    stepwise = LMDrafter("one", TorchDecoder(tiny.llama(1), static=False), tiny.VOCAB)
    assert waits(lambda: stepwise.propose(PROMPT, 6, GREEDY, seeded()))[0] >= 6


@pytest.mark.parametrize("params", SAMPLING.values(), ids=SAMPLING.keys())
@pytest.mark.parametrize("confidence", [0.0, 0.3])
def test_the_host_waits_once_for_a_draft_and_once_for_its_verification(params, confidence):
    model = tiny.llama(1)
    target = Target(model, TorchDecoder(model, static=True))
    drafter = LMDrafter("one", TorchDecoder(tiny.llama(2), static=True), tiny.VOCAB, confidence=confidence)
    context, generator = list(PROMPT), seeded()

    def score():
        return verify_elsewhere(draft, target.score(draft), params, generator)

    assert waits(lambda: target.prefill(PROMPT))[0] == 0
    for _ in range(4):
        counted, draft = waits(partial(drafter.propose, list(context), 5, params, generator))
        assert counted == 1
        counted, verdict = waits(score)
        assert counted == 1
        counted, _ = waits(partial(target.accept, verdict.path, verdict.own))
        assert counted == 0
        context += [*(draft.tokens[node] for node in verdict.path), verdict.own]


def test_the_host_waits_once_for_a_tree():
    model = tiny.llama(1)
    target = Target(model, TorchDecoder(model, static=True))
    target.prefill(PROMPT)
    for params in (SAMPLING["greedy"], SAMPLING["hot"]):
        counted, _ = waits(lambda params=params: verify_elsewhere(DRAFT, target.score(DRAFT), params, seeded()))
        # Positions and what nodes see of each other are made on the CPU, as arrays of NumPy.
        assert counted == 1 + 2


def traced_whole(decoder):
    """Whether every program so far can be traced: no graph break, no shape that depends on a number, as a CUDA graph
    needs it."""
    for program in decoder.runs.stack._programs.values():
        torch.compiler.reset()
        with torch.inference_mode():
            traced = torch.compile(program.run._function, fullgraph=True, dynamic=False, backend="eager")()
            expected = program.run()
        for found, wanted in zip(traced, expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    torch.compiler.reset()
    return True


def test_a_draft_is_traced_whole():
    decoder = TorchDecoder(made("llama"), static=True)
    decoder.draft([1, 2, 3], 0, DraftOptions(2, SamplingParams(temperature=1.0, top_k=5), seeded(), 97, -5.0, True))
    assert traced_whole(decoder) and len(decoder.runs.stack._programs) == 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "llama with biases", "sliding mistral", "partly sliding qwen2", "qwen3"])
def test_forward_and_draft_are_traced_whole(name):
    decoder = TorchDecoder(made(name), static=True)
    decoder.forward([1, 2, 3], 0, capture=(1, 3))
    decoder.forward([4, *DRAFT.tokens], 3, positions=3 + DEPTHS, mask=tree_mask(DRAFT, 3))
    for params in (SAMPLING["greedy"], SamplingParams(temperature=1.0, top_k=5, top_p=0.9)):
        decoder.draft([1, 2, 3], 0, DraftOptions(3, params, seeded(), 97, -5.0, with_q=True))
    assert traced_whole(decoder) and len(decoder.runs.stack._programs) == 4


# Kernels.

VIEWS = "view reshape transpose slice unsqueeze squeeze expand select alias detach permute split chunk narrow unbind t"
VIEWS_OF_ATEN = {*VIEWS.split(), "_unsafe_view", "unflatten", "flatten", "as_strided", "view_as"}


class Operations(TorchDispatchMode):
    """Counts operations that compute something: views launch no kernel."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.__name__.split(".")[0] not in VIEWS_OF_ATEN
        return function(*args, **(kwargs or {}))


def per_layer(name, run):
    """What a third layer adds to a step."""
    counts = []
    for layers in (2, 3):
        model = made(name).to(torch.bfloat16)
        del model.model.layers[layers:]
        model.config.num_hidden_layers = layers
        if getattr(model.config, "layer_types", None):
            model.config.layer_types = model.config.layer_types[:layers]
        counts.append(run(model))
    return counts[1] - counts[0]


def ours(width, models=1):
    def run(model):
        if models > 1:
            group = TorchGroup([made_like(model) for _ in range(models)], static=True)
            feed = partial(group.forward, [1] * width, [0] * models, last=1)
        else:
            feed = partial(TorchDecoder(model, static=True).forward, [1] * width, 0)
        feed()
        with Operations() as operations:
            feed()
        return operations.count

    return run


def made_like(model):
    other = type(model)(model.config).to(model.dtype).eval()
    other.load_state_dict(model.state_dict())
    return other


def hub(cache):
    def run(model):
        past = StaticCache(config=model.config, max_cache_len=64) if cache is StaticCache else DynamicCache()
        with torch.inference_mode():
            model(torch.tensor([[1, 2]]), past_key_values=past)
            with Operations() as operations:
                model(torch.tensor([[1]]), past_key_values=past)
        return operations.count

    return run


@pytest.mark.parametrize("name", ["llama", "llama with biases", "sliding mistral", "qwen2", "qwen3"])
def test_a_layer_takes_at_most_sixteen_kernels(name):
    assert per_layer(name, ours(1)) <= 16 and per_layer(name, ours(8)) <= 16 + (name == "llama with biases")
    for cache in (DynamicCache, StaticCache):
        assert per_layer(name, hub(cache)) >= 40


def test_a_layer_of_several_models_takes_as_many_as_one():
    assert per_layer("llama", ours(1, models=4)) <= per_layer("llama", ours(1)) + 2  # norms have weights of their own


# It is the same engine.


@pytest.fixture(scope="module")
def static_pool():
    pool = pool_of(tiny.llama(1), "static")
    models = {d.name: d.model.model for d in pool.drafters if isinstance(d, LMDrafter)}
    group = TorchGroup(list(models.values()), static=True)
    for drafter, decoder in zip(pool.drafters[:2], group.decoders, strict=True):
        drafter.model = decoder
    pool.drafters[0].group.models = group
    return pool


@pytest.mark.parametrize("policy", ["autoregressive", "fixed:near", "fixed:lookup", "draft-all", "normal-hedge"])
def test_greedy_output_is_the_target_s(static_pool, policy):
    check_greedy(static_pool, tiny.prompts(3, seed=9), policy, GREEDY.max_new_tokens)


@pytest.mark.parametrize("policy", ["fixed:alone", "normal-hedge"])
def test_sampled_output_is_that_of_other_runtimes(static_pool, policy):
    """Of the same seed: uniform numbers are drawn in the same order, and probabilities agree up to rounding."""
    other = pool_of(tiny.llama(1), "torch")
    for seed, prompt in enumerate(tiny.prompts(3, seed=9)):
        found, expected = (generate(pool, prompt, policy, SAMPLED, seed) for pool in (static_pool, other))
        assert found.token_ids == expected.token_ids


def test_a_quantised_model_runs_by_its_own_layers():
    """Each linear layer by its own forward, as those of ``bitsandbytes`` have to be."""

    class Own(torch.nn.Linear):
        pass

    model = made("qwen2")
    expected = tiny.logits_of(model, PROMPT)
    for module in [m for m in model.modules() if type(m) is torch.nn.Linear and m is not model.lm_head]:
        module.__class__ = Own
    for static in (False, True):
        found = TorchDecoder(model, static=static).forward(PROMPT, 0)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=5e-5)


def test_the_library_s_forward_still_takes_what_a_tree_is():
    model = made("sliding mistral")
    hub_decoder, decoder = HubDecoder(model), TorchDecoder(model, static=True)
    for each in (hub_decoder, decoder):
        each.forward(PROMPT, 0, last=1)
    tree = {"positions": len(PROMPT) + DEPTHS, "mask": tree_mask(DRAFT, len(PROMPT))}
    found, expected = (d.forward([4, *DRAFT.tokens], len(PROMPT), **tree) for d in (decoder, hub_decoder))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=5e-5)
    assert Draft.chain([1]).is_chain and make_lm_drafters({}, tiny.VOCAB) == []
