"""The budget of keys and values: who may begin, who waits and in which order, and what is given back."""

import gc
import sys

import pytest
import torch

from drafters import caches as caches_module
from drafters.caches import STEP, Caches, Waiting, ran_out
from drafters.card import load_card
from drafters.errors import PoolError, TextMemoryError
from drafters.memory import estimate
from drafters.models.onnx_decoder import OnnxDecoder
from drafters.models.pages import Pages
from drafters.pool import load_pool
from drafters.sampling import SamplingParams
from multidraft import generate
from tests import tiny


class Held:
    """Stands for a pool."""

    def __init__(self, caches):
        self.caches, self.renewed = caches, 0

    def renew(self):
        self.renewed += 1


@pytest.fixture
def budget(monkeypatch):
    """Room for four texts of 16 tokens, a KiB each; no garbage is collected, which takes a while."""
    monkeypatch.setattr(caches_module, "free_unused", lambda: None)
    return Caches(lambda tokens: 1024 * tokens, 4 * STEP * 1024)


def admitted(caches, holder, tokens):
    return caches.admit(Waiting(), holder, tokens)


def test_texts_begin_as_long_as_there_is_room(budget):
    holders = [Held(budget) for _ in range(3)]
    assert admitted(budget, holders[0], 1) and admitted(budget, holders[1], 2 * STEP)
    assert budget.held == 3 * STEP * 1024
    text = Waiting()
    assert not budget.admit(text, holders[2], 2 * STEP)
    budget.end(holders[0])
    assert budget.admit(text, holders[2], 2 * STEP)
    assert [holder.renewed for holder in holders] == [1, 0, 0], "the memory of the text that has ended is given back"


def test_caches_are_kept_while_there_is_room(budget):
    first, second = Held(budget), Held(budget)
    assert admitted(budget, first, 3 * STEP)
    budget.end(first)
    assert admitted(budget, second, STEP) and budget.held == 4 * STEP * 1024 and not first.renewed
    assert admitted(budget, first, 3 * STEP) and not first.renewed


def test_a_long_text_is_not_passed_by_shorter_ones(budget):
    first, other = Held(budget), Held(budget)
    long, short = Waiting(), Waiting()
    assert admitted(budget, first, STEP)
    assert not budget.admit(long, other, 4 * STEP) and not budget.admit(short, other, STEP)
    budget.leave(long)
    assert budget.admit(short, other, STEP)


def test_a_text_that_nothing_refers_to_waits_no_longer(budget):
    first, other = Held(budget), Held(budget)
    long = Waiting()
    assert admitted(budget, first, STEP) and not budget.admit(long, other, 4 * STEP)
    del long
    assert admitted(budget, other, STEP)


def test_a_text_that_is_too_long_for_what_its_own_caches_hold_already(budget):
    """Caches that grew to the whole budget are given back for two that need half of it each."""
    first, second = Held(budget), Held(budget)
    assert admitted(budget, first, 4 * STEP)
    budget.end(first)
    assert admitted(budget, second, 2 * STEP) and first.renewed and admitted(budget, first, 2 * STEP)


def test_caches_that_are_gone_do_not_count(budget):
    held = Held(budget)
    assert admitted(budget, held, 4 * STEP)
    del held
    gc.collect()
    assert budget.held == 0 and admitted(budget, Held(budget), 4 * STEP)


def test_a_text_that_could_never_begin_is_refused_with_the_numbers(budget):
    budget.check(STEP, 3 * STEP, 1000)
    budget.check(STEP, 9 * STEP, 4 * STEP)
    with pytest.raises(
        TextMemoryError,
        match=r"the prompt has 17 tokens and its answer may have 48: .* take 80 KiB, .* may take 64 KiB here; "
        r"shorten the prompt, ask for fewer tokens, or raise MULTIDRAFT_CACHE_MEMORY",
    ):
        budget.check(STEP + 1, 3 * STEP, 1000)
    Caches(lambda tokens: tokens, None).check(10**9, 10**9, 10**10)


def test_only_a_lack_of_memory_gives_caches_back(budget):
    held = Held(budget)
    assert ran_out(ValueError("no"), held, "a token") is None and not held.renewed
    said = str(ran_out(torch.OutOfMemoryError("CUDA out of memory"), held, 5))
    assert held.renewed and "the memory ran out after 5 tokens; this text's memory has been freed" in said


# Memory that is given back.


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere memory is held as long as the array")
def test_pages_are_zeros_again_once_they_are_forgotten():
    pages = Pages((3, 2, 5000))
    pages.array += 1.0
    pages.forget(pages.array[1, 0])
    assert pages.array[0].all() and pages.array[2].all() and pages.array[1, 1].all()
    zeros = int((pages.array[1, 0] == 0).sum())
    assert 0 < zeros <= 5000 and not pages.array[1, 0, 2000:3000].any()
    assert Pages((2, 0, 4)).array.shape == (2, 0, 4)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere memory is held as long as the array")
def test_a_slot_that_is_free_takes_up_no_memory_nor_do_those_that_were_never_written():
    first = OnnxDecoder(tiny.llama(window=2048))
    runs, second = first.runs, first.twin()
    for decoder in (first, second):
        decoder.forward([1, 2, 3], 0)
    kept = runs._cache[:, 0, :, :3].clone()
    assert runs._cache[:, 1, :, :3].any()
    slot = second._slot.number
    del second, decoder
    assert not runs._cache[:, slot].any()
    first.forward([4] * 600, 3, last=1)  # more than there is room for
    assert runs._cache.shape[3] > 600 and torch.equal(runs._cache[:, 0, :, :3], kept)


def test_a_renewed_pool_has_empty_caches_and_decodes_as_before(tmp_path):
    pool = load_pool(tiny.write_pool(tmp_path))
    target, drafters = pool.target, list(pool.drafters)
    context = [1, 2, 3]
    target.prefill(context)
    expected = tiny.logits_of(target.model, context)
    pool.renew()
    assert pool.target is not target and pool.target.model is target.model
    assert [drafter.name for drafter in pool.drafters] == [drafter.name for drafter in drafters]
    assert pool.drafters[0].group.members[0] is pool.drafters[0] is not drafters[0]
    pool.target.prefill(context[:-1])
    torch.testing.assert_close(pool.target.decoder.forward(context, 0)[-1], expected[-1], rtol=1e-4, atol=1e-5)


# The budget of a pool.


def test_a_loaded_pool_has_its_budget(tmp_path):
    path = tiny.write_pool(tmp_path)
    text = estimate(load_card(path)[0], path, "cpu").text
    pool = load_pool(path, cache_bytes=text // 2)
    assert pool.caches.budget == text // 2 and pool.twin().caches is pool.caches
    prompt = "a" * 30
    assert generate(pool, prompt[:2], "autoregressive", SamplingParams(max_new_tokens=4)).status == "completed"
    with pytest.raises(TextMemoryError, match=r"the prompt has 30 tokens and its answer may have 34: .* shorten"):
        generate(pool, prompt, "autoregressive", SamplingParams(max_new_tokens=400))


@pytest.mark.parametrize("budget", [0, -1, float("nan"), "1 GiB"])
def test_a_budget_is_a_number_of_bytes(tmp_path, budget):
    with pytest.raises(PoolError, match="cache_bytes must be a number above 0, got "):
        load_pool(tiny.write_pool(tmp_path), cache_bytes=budget)
