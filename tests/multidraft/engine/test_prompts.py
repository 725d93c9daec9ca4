"""Prompts and seeds that are taken, and those that are refused."""

import json

import numpy as np
import pytest

from drafters.errors import ContextWindowError, PolicyError, PromptError, UserError
from drafters.sampling import SamplingParams
from multidraft.bench.measure import Measurement, Request
from multidraft.engine.batch import generate_batch
from multidraft.engine.decoding import generate, stream
from multidraft.engine.output import Output
from multidraft.engine.warming import warm_up
from multidraft.replay.regret import acceptance_table
from multidraft.replay.walk import replay
from storage.run import Origin
from tests import tiny


@pytest.mark.parametrize("prompt", ["", "   ", "\n\t", []])
def test_an_empty_prompt_is_refused(pool, prompt):
    with pytest.raises(PromptError, match="empty"):
        stream(pool, prompt, "ucb")


@pytest.mark.parametrize("length", [tiny.WINDOW, tiny.WINDOW + 1, 5000])
def test_a_prompt_that_fills_the_window_is_refused(pool, length):
    with pytest.raises(ContextWindowError, match=rf"{length:,} (tokens|characters).*'tiny' holds 64.*shorten"):
        stream(pool, "a" * length, "ucb")


def test_a_pool_is_not_given_by_its_name():
    of_pools = (generate, "abc"), (generate_batch, ["abc"]), (acceptance_table, [1], [2], 3), (warm_up,)
    for function, *arguments in of_pools:
        with pytest.raises(UserError, match=r"a pool is needed.*load_pool\('pocket'\)"):
            function("pocket", *arguments)


def test_arguments_of_other_types_are_refused(pool):
    for wrong, said in (
        (lambda: generate(None, "abc"), "a pool is needed, got NoneType"),
        (lambda: generate(pool, "abc", ["ucb"]), "a policy is one spec.*got list"),
        (lambda: replay(np.ones((2, 5), dtype=int), None), "a policy is one spec.*got NoneType"),
        (lambda: replay(np.ones((2, 5), dtype=int), "random", seed=None), "the seed must be.*got None"),
        (lambda: generate(pool, "abc", "ucb", {"max_new_tokens": 4}), "SamplingParams, such as.*got dict"),
        (lambda: generate(pool, "abc", output={"stop": ["a"]}), "output must be Output, such as.*got dict"),
        (lambda: generate(pool, "abc", "ucb", {}), "got dict"),
        (lambda: generate_batch(pool, ["abc"], size=0), "from 1 on, got 0"),
        (lambda: generate_batch(pool, ["abc"], size="8"), "from 1 on, got '8'"),
    ):
        with pytest.raises(UserError, match=said):
            wrong()


def test_an_unknown_policy_is_refused(pool):
    with pytest.raises(PolicyError, match="unknown policy"):
        stream(pool, "abc", "no-such")
    with pytest.raises(PolicyError, match="no drafter 'nobody'"):
        stream(pool, "abc", "fixed:nobody")


@pytest.mark.parametrize("prompt", ["<|end|>", "abc<|end|>abc", "<b>&amp;", "\x00", "日本🎉", "a\r\nb"])
def test_strange_prompts_run(pool, prompt):
    out = generate(pool, prompt, "normal-hedge", SamplingParams(8))
    assert out.status == "completed"
    assert out.prompt == prompt
    assert out.token_ids == tiny.greedy(pool.target.model, pool.encode(prompt), 8)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("half \ud83d", "character 6 of the prompt is half of one"),
        ([], "at least one token id"),
        ([2, tiny.VOCAB], f"token id {tiny.VOCAB} is not one of the target's: 0 to {tiny.VOCAB - 1}"),
        ([2, -1], "token id -1"),
        ([1.5], "a text or a list of token ids, got list"),
        ([True, 3], "a text or a list of token ids, got list"),
        (b"abc", "a text or a list of token ids, got bytes"),
        (None, "a text or a list of token ids, got NoneType"),
    ],
)
def test_prompts_that_are_none(pool, prompt, said):
    with pytest.raises(PromptError, match=said):
        generate(pool, prompt)


def test_any_token_ids_are_a_prompt(pool):
    assert len(generate(pool, [tiny.END], "ucb", SamplingParams(4)).token_ids) == 4
    ids = [2, 3, 4]
    assert generate(pool, np.array(ids), "ucb", SamplingParams(4)).token_ids == tiny.greedy(pool.target.model, ids, 4)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "7", True])
def test_seeds_that_are_none(pool, seed):
    with pytest.raises(UserError, match="the seed must be a whole number from 0"):
        generate(pool, "abc", seed=seed)


def test_seeds_of_numpy_are_seeds(pool):
    decoding = stream(pool, "abc", seed=np.arange(5)[3])
    assert decoding.seed == 3 and type(decoding.seed) is int and decoding.run().token_ids
    table = np.ones((2, 5), dtype=int)
    assert replay(table, "random", seed=np.int64(3)).arms == replay(table, "random", seed=3).arms
    run = Measurement(pool, Request("abc", "random", SamplingParams(4), np.int64(3), Origin("command"))).run
    assert json.dumps(run.to_json()["seed"]) == "3"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stop": "end"}, "stop must be a tuple of texts"),
        ({"stop": (3,)}, "stop must be a tuple of texts"),
        ({"stop": 5}, "stop must be a tuple of texts, .* got 5"),
        ({"stop": ("",)}, "a stop text is empty"),
        ({"logprobs": -1}, "logprobs must be a whole number from 0 on, or None, got -1"),
        ({"logprobs": True}, "got True"),
        ({"stop_after": -1}, "stop_after must be a whole number from 0 on, got -1"),
    ],
)
def test_outputs_that_cannot_be_had(given, said):
    with pytest.raises(UserError, match=said):
        Output(**given)


def test_several_prompts_are_for_generate_batch(pool):
    with pytest.raises(PromptError, match=r"got list; generate_batch decodes several prompts"):
        generate(pool, ["a", "b"], "ucb")
    with pytest.raises(PromptError, match="a list of prompts, not one text"):
        generate_batch(pool, "ab", "ucb")
    with pytest.raises(PromptError, match="a list of prompts, not 5;"):
        generate_batch(pool, 5, "ucb")


def test_texts_that_end_an_output_may_come_one_by_one(pool):
    """Checked, they are still there."""
    whole = generate(pool, [2, 3], "ucb")
    stop = Output(text for text in (whole.text[2:4],))
    assert stop == Output((whole.text[2:4],)) and Output(stop_after=np.int64(3)) == Output(stop_after=3)
    assert generate(pool, [2, 3], "ucb", output=stop).text == whole.text[: whole.text.index(whole.text[2:4]) + 2]


@pytest.mark.parametrize("turns", ["Hello", None, 5, ["Hello", "Hi!"], [("Hello",)], [{"role": "user"}], [(2, 3)]])
def test_what_is_no_conversation(pool, turns):
    with pytest.raises(PromptError, match=r"^turns must be pairs of an earlier prompt and its answer, such as "):
        generate(pool, "abc", turns=turns)


def test_a_pool_encodes_texts_alone(pool):
    for prompt in (5, None, [2, 3], b"abc"):
        with pytest.raises(PromptError, match="the prompt must be a text, got "):
            pool.encode(prompt)


@pytest.mark.parametrize("params", [None, SamplingParams(3), SamplingParams(temperature=1.0)])
def test_where_none_is_named_drafts_are_as_long_as_the_pools(pool, params):
    assert stream(pool, [2, 3, 4], params=params).params.draft_length == pool.draft_length == 4
    assert stream(pool, [2, 3, 4], params=SamplingParams(draft_length=5)).params.draft_length == 5


def test_numbers_of_numpy_are_numbers():
    params = SamplingParams(np.int64(7), top_k=np.int32(3))
    assert params == SamplingParams(7, top_k=3) and type(params.max_new_tokens) is type(params.top_k) is int
