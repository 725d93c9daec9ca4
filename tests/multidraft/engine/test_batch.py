"""Texts decoded at once: each gets what it gets alone, from the same drafts, and they share forwards."""

import gc
import threading

import numpy as np
import pytest
import torch

from drafters.draft import Draft
from drafters.errors import ContextWindowError, PolicyError, TextMemoryError, UserError
from drafters.models.onnx_model import OnnxModel
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from multidraft.engine.batch import Batch, Text, generate_batch, text_of
from multidraft.engine.decoding import Decoding, generate, stream
from multidraft.engine.output import Output
from multidraft.policies import POLICIES, make_policy
from tests import kinds, tiny

PARAMS = SamplingParams(max_new_tokens=14, draft_length=4)
PROMPTS = tiny.prompts(5, shortest=2, longest=20)
CHOOSING = sorted(name for name, policy in POLICIES.items() if policy.live and not policy.needs_route)


def spec(name):
    return f"{name}:near" if name == "fixed" else name


def text(prompt, policy="ucb"):
    return Text(lambda twin: Decoding(twin, prompt, policy, PARAMS).run(), len(prompt) + PARAMS.max_new_tokens)


def played(generation):
    return [(r.arm, r.drafted, r.tokens, r.draft_length) for r in generation.rounds]


@pytest.fixture(scope="module")
def kinds_pool(kinds_card):
    return kinds.load(kinds_card)


@pytest.mark.parametrize("policy", [spec(name) for name in CHOOSING])
def test_every_policy_decodes_in_a_batch_as_it_does_alone(pool, policy):
    pool.previous.clear()
    alone = [generate(pool, prompt, policy, PARAMS, seed=3) for prompt in PROMPTS]
    pool.previous.clear()
    together = generate_batch(pool, PROMPTS, policy, PARAMS, seed=3, size=3)
    assert [g.token_ids for g in together] == [g.token_ids for g in alone]
    if not POLICIES[policy.partition(":")[0]].uses_costs:
        assert [played(g) for g in together] == [played(g) for g in alone]
    assert [g.streams for g in alone] == [1] * 5 and max(g.streams for g in together) == 3


@pytest.mark.parametrize("drafter", kinds.NAMES)
def test_every_kind_of_drafter_keeps_texts_apart(kinds_pool, drafter):
    alone = [generate(kinds_pool, prompt, f"fixed:{drafter}", PARAMS) for prompt in PROMPTS]
    together = generate_batch(kinds_pool, PROMPTS, f"fixed:{drafter}", PARAMS, size=4)
    assert [played(g) for g in together] == [played(g) for g in alone]


def test_all_kinds_are_evaluated_in_a_batch_as_they_are_alone(kinds_pool):
    alone = [generate(kinds_pool, prompt, "normal-hedge:every=2", PARAMS) for prompt in PROMPTS]
    together = generate_batch(kinds_pool, PROMPTS, "normal-hedge:every=2", PARAMS, size=4)
    assert [played(g) for g in together] == [played(g) for g in alone]


@pytest.mark.parametrize("runtime", tiny.RUNTIMES)
def test_every_runtime_decodes_batches(pool, runtime, monkeypatch):
    alone = [generate(pool, prompt, "fixed:near", PARAMS) for prompt in PROMPTS]
    monkeypatch.setattr(pool.target, "decoder", tiny.RUNTIMES[runtime](pool.target.model))
    together = generate_batch(pool, PROMPTS, "fixed:near", PARAMS, size=4)
    assert [g.token_ids for g in together] == [g.token_ids for g in alone]


def test_sampled_texts_are_those_of_their_seed(pool):
    params = SamplingParams(max_new_tokens=14, draft_length=4, temperature=0.9, top_p=0.95)
    alone = [generate(pool, prompt, "ucb", params, seed=7).token_ids for prompt in PROMPTS]
    assert [g.token_ids for g in generate_batch(pool, PROMPTS, "ucb", params, seed=7, size=5)] == alone


def test_each_prompt_may_have_its_own_policy_settings_and_seed(pool):
    params = [SamplingParams(n, draft_length=3, temperature=0.9) for n in (9, 6, 14)]
    cases = list(zip([PROMPTS[0]] * 3, ["ucb", make_policy("fixed:far", pool.drafter_names), "ucb"], params, [1, 2, 3]))
    alone = [generate(pool, prompt, *others).token_ids for prompt, *others in cases]
    found = [g.token_ids for g in generate_batch(pool, *map(list, zip(*cases)), size=2)]
    assert found == alone and found[0] != found[2][:9]  # of one prompt, by seeds
    *others, seeds = map(list, zip(*cases))
    again = generate_batch(pool, *others, seed=np.array(seeds), size=np.int64(2))
    assert [g.token_ids for g in again] == found
    one = generate_batch(pool, *others, seed=np.int64(2))
    assert one[1].token_ids == found[1] and one[0].token_ids != found[0]


def test_prompts_of_a_batch_do_not_share_a_policy(pool):
    with pytest.raises(PolicyError, match="cannot share a Policy; give its spec, or one for each"):
        generate_batch(pool, PROMPTS[:2], make_policy("ucb", pool.drafter_names))
    with pytest.raises(UserError, match="seed is a list of 3 for 2 prompts; give one for each, or one for all"):
        generate_batch(pool, PROMPTS[:2], seed=[1, 2, 3])
    policy = make_policy("ucb", pool.drafter_names)
    found = generate_batch(pool, iter(PROMPTS[:2]), policy, PARAMS, size=1)  # one after the other
    assert [played(g) for g in found] == [played(generate(pool, p, "ucb", PARAMS)) for p in PROMPTS[:2]]


def test_stop_texts_hold_for_batches_and_streams(pool):
    whole = generate(pool, PROMPTS[0], "ucb", PARAMS)
    output = Output(stop=(whole.rounds[1].text,))
    cut = generate(pool, PROMPTS[0], "ucb", PARAMS, output=output)
    assert cut.status == "stopped" and len(cut.token_ids) < len(whole.token_ids)
    assert generate_batch(pool, [PROMPTS[0]], "ucb", PARAMS, output=output)[0].token_ids == cut.token_ids
    assert [t for r in stream(pool, PROMPTS[0], "ucb", PARAMS, output=output) for t in r.tokens] == cut.token_ids


def test_texts_join_and_leave_and_each_has_its_own_policy_and_length(pool):
    cases = list(zip(PROMPTS, ["ucb", "autoregressive", "fixed:far", "normal-hedge", "fixed:near"], [9, 3, 14, 6, 1]))
    alone = [generate(pool, p, policy, SamplingParams(n, draft_length=3)) for p, policy, n in cases]
    batch, found, waiting = Batch(pool, most=2), {}, list(enumerate(cases))
    while waiting or len(batch):
        while waiting:
            number, (prompt, policy, tokens) = waiting[0]
            params = SamplingParams(tokens, draft_length=3)
            if (stream := batch.start(text_of(Decoding(pool, prompt, policy, params)))) is None:
                break
            found[stream] = number
            del waiting[0]
        assert 1 <= len(batch) <= 2
        for stream in batch.step():
            assert stream.error is None
            assert played(stream.result) == played(alone[found.pop(stream)])
    assert not found
    assert [batch.start(Text(lambda twin: None, 5)) is None for _ in range(3)] == [False, False, True]


def test_forwards_are_shared(pool, monkeypatch):
    forwards, run = [], OnnxModel.run
    monkeypatch.setattr(OnnxModel, "run", lambda self, feeds: (forwards.append(len(feeds)), run(self, feeds))[1])
    generate_batch(pool, [PROMPTS[0]] * 4, "autoregressive", PARAMS, size=4)
    assert forwards.count(4) >= PARAMS.max_new_tokens - 1
    assert sum(forwards) - 4 * forwards.count(4) <= 4 * (1 + len(pool.drafters)), "prompts are read one by one"


def test_a_text_that_fails_leaves_the_others_alone(pool):
    alone = generate(pool, PROMPTS[0], "ucb", PARAMS)
    batch = Batch(pool)
    well = batch.start(text(PROMPTS[0], "ucb"))
    bad = batch.start(text(PROMPTS[1], "ucb:beta=-1"))
    while len(batch):
        batch.step()
    assert isinstance(bad.error, PolicyError) and well.result.token_ids == alone.token_ids


def test_a_text_under_way_does_not_disturb_one_alone(pool):
    """A batch that stops in the middle, and goes on after another generation."""
    alone = [generate(pool, prompt, "ucb", PARAMS).token_ids for prompt in PROMPTS[:2]]
    batch = Batch(pool)
    stream = batch.start(text(PROMPTS[0], "ucb"))
    for _ in range(3):
        batch.step()
    assert generate(pool, PROMPTS[1], "ucb", PARAMS).token_ids == alone[1]
    while len(batch):
        batch.step()
    assert stream.result.token_ids == alone[0]


def test_weights_are_shared_and_caches_are_not(tmp_path):
    pool = load_pool(tiny.write_pool(tmp_path))
    twin = pool.twin()
    assert twin.target.model is pool.target.model and twin.target.decoder.runs is pool.target.decoder.runs
    assert twin.costs is not pool.costs and twin.costs.steps is pool.costs.steps
    pool.target.prefill([1, 2, 3])
    twin.target.prefill([4, 5])
    first = pool.target.score(Draft.empty())
    torch.testing.assert_close(first[0], tiny.logits_of(pool.target.model, [1, 2, 3])[-1], rtol=1e-4, atol=1e-5)
    slots = {decoder._slot.number for decoder in (pool.target.decoder, twin.target.decoder)}
    assert slots == {0, 1}
    runs = pool.target.decoder.runs
    del twin
    assert runs.take_slot() == 1, "its slot is free again"


def test_where_one_text_fails_the_others_end_and_the_pool_is_free(pool):
    too_long = "a" * 300
    with pytest.raises(ContextWindowError, match="prompt 3: the prompt has 300 tokens"):
        generate_batch(pool, [*PROMPTS[:2], too_long], "ucb", PARAMS, size=3)
    assert pool.lock._depth == 0
    found = []
    thread = threading.Thread(target=lambda: found.append(generate(pool, PROMPTS[0], "ucb", PARAMS)))
    thread.start()
    thread.join(30)
    assert found and found[0].status == "completed"


def test_a_batch_that_is_closed_lets_the_pool_go(pool):
    batch = Batch(pool)
    streams = [batch.start(text(p)) for p in PROMPTS[:2]]
    for _ in range(3):
        batch.step()
    assert pool.lock._depth == 2
    batch.close()
    assert pool.lock._depth == 0 and len(batch) == 0
    assert all(stream.dead and stream.result is None and stream.error is None for stream in streams)
    again = batch.run([Decoding(pool, PROMPTS[0], "ucb", PARAMS)])
    assert again[0].token_ids == generate(pool, PROMPTS[0], "ucb", PARAMS).token_ids


def test_a_batch_ends_with_its_block_and_with_its_last_reference(pool):
    with Batch(pool) as batch:
        batch.start(text(PROMPTS[0]))
        batch.step()
        assert pool.lock._depth == 1
    assert pool.lock._depth == 0
    batch.start(text(PROMPTS[0]))
    batch.step()
    del batch
    assert pool.lock._depth == 0


@pytest.mark.parametrize("way", ["with", "close", "drop"])
def test_caches_of_a_batch_are_free_when_it_ends(pool, way):
    """Not only when Python's collector comes by: those of the next batch would be new ones, and all would grow."""
    models = [pool.target.decoder.runs, *(drafter.model.runs for drafter in pool.drafters if drafter.kind == "lm")]
    gc.collect()
    before = [sorted(model._written) for model in models]
    gc.disable()
    try:
        batch = Batch(pool)
        for prompt in PROMPTS:
            batch.start(text(prompt, "normal-hedge:every=1"))
        for _ in range(2):
            batch.step()
        assert [len(model._written) for model in models] == [len(slots) + len(PROMPTS) for slots in before]
        if way == "with":
            with batch:
                pass
        elif way == "close":
            batch.close()
        else:
            del batch
        assert [sorted(model._written) for model in models] == before
    finally:
        gc.enable()


@pytest.fixture
def own_pool(tmp_path):
    """A pool of its own without stop tokens."""
    return tiny.load(tiny.write_pool(tmp_path))


def test_texts_that_do_not_fit_wait(own_pool):
    """With room for two at once, whatever the batch would take."""
    prompts = tiny.prompts(5, seed=2, shortest=10, longest=10)
    alone = [generate(own_pool, prompt, "ucb", PARAMS).token_ids for prompt in prompts]
    own_pool.caches.budget = 2 * own_pool.caches.size(10 + PARAMS.max_new_tokens)
    together = generate_batch(own_pool, prompts, "ucb", PARAMS, size=5)
    assert [g.token_ids for g in together] == alone and max(g.streams for g in together) == 2
    own_pool.caches.budget = own_pool.caches.size(10 + PARAMS.max_new_tokens)
    assert {g.streams for g in generate_batch(own_pool, prompts, "ucb", PARAMS, size=5)} == {1}
    own_pool.caches.budget //= 2
    with pytest.raises(TextMemoryError, match="keys and values"):
        generate_batch(own_pool, ["a" * 60], "ucb", PARAMS)


def test_texts_wait_no_longer_than_others_are_there(own_pool):
    own_pool.caches.budget = own_pool.caches.size(64)
    with Batch(own_pool) as one, Batch(own_pool) as other:
        one.start(text(PROMPTS[0]))
        with pytest.raises(TextMemoryError, match="decoded elsewhere"):
            other.run([Decoding(own_pool, PROMPTS[1], "ucb", PARAMS)])
        while len(one):
            one.step()
        assert len(other.run([Decoding(own_pool, PROMPTS[1], "ucb", PARAMS)])) == 1


@pytest.mark.parametrize(
    "error", [MemoryError("no room"), torch.OutOfMemoryError("CUDA ran out"), RuntimeError("can't allocate memory")]
)
def test_memory_that_runs_out_ends_one_text_alone(own_pool, monkeypatch, error):
    """The forward of the second text always fails, alone and with others; its caches are given back."""
    alone = [generate(own_pool, prompt, "autoregressive", PARAMS).token_ids for prompt in PROMPTS[:3]]
    run = OnnxModel.run

    def small(model, feeds):
        if model is own_pool.target.decoder.runs and any(feed.slot == bad for feed in feeds):
            raise error
        return run(model, feeds)

    with Batch(own_pool) as batch:
        streams = [batch.start(text(prompt, "autoregressive")) for prompt in PROMPTS[:3]]
        for _ in range(4):
            batch.step()
        twin = batch._pools[streams[1]]
        before, bad = twin.target, twin.target.decoder._slot.number
        monkeypatch.setattr(OnnxModel, "run", small)
        while len(batch):
            batch.step()
        assert [streams[0].result.token_ids, streams[2].result.token_ids] == [alone[0], alone[2]]
        assert isinstance(streams[1].error, TextMemoryError) and "this text's memory has been freed" in str(
            streams[1].error
        )
        assert twin.target is not before
    monkeypatch.undo()
    again = generate_batch(own_pool, PROMPTS[:3], "autoregressive", PARAMS, size=3)
    assert [g.token_ids for g in again] == alone


@pytest.mark.benched
def test_memory_that_runs_out_ends_a_text_that_is_alone(own_pool, monkeypatch):
    def fail(model, feeds):
        raise MemoryError

    expected = generate(own_pool, PROMPTS[0], "ucb", PARAMS)
    decoding = Decoding(own_pool, PROMPTS[0], "ucb", PARAMS)
    next(decoding)
    with monkeypatch.context() as patched, pytest.raises(TextMemoryError, match="ran out after"):
        patched.setattr(OnnxModel, "run", fail)
        decoding.run()
    assert decoding.generation.status == "error" and "memory ran out after" in decoding.generation.error
    assert generate(own_pool, PROMPTS[0], "ucb", PARAMS).token_ids == expected.token_ids


def test_where_no_forwards_are_shared_a_step_is_a_round(pool, monkeypatch):
    monkeypatch.setattr(pool.target, "decoder", tiny.RUNTIMES["hub"](pool.target.model))
    with Batch(pool) as batch:
        streams = [batch.start(text(prompt, "autoregressive")) for prompt in PROMPTS[:2]]
        steps = 0
        while len(batch):
            batch.step()
            steps += 1
    assert steps >= PARAMS.max_new_tokens and {stream.result.streams for stream in streams} == {1}


def test_room_that_grows_leaves_free_slots_unwritten(pool):
    runs = pool.target.decoder.runs
    twins = [pool.target.decoder.twin() for _ in range(2)]
    twins[1].forward([1, 2, 3], 0)
    with torch.inference_mode():
        runs._cache[:, twins[0]._slot.number] = 7.0
    free, used = twins[0]._slot.number, twins[1]._slot.number
    del twins[0]
    runs.make_room(3, runs._cache.shape[3] + 1)
    assert not runs._cache[:, free].any() and runs._cache[:, used].any()
