"""Texts that end an output, stop tokens that do not, and the probabilities of tokens."""

from __future__ import annotations

import pytest
import torch

from drafters.draft import Draft
from drafters.errors import UserError
from drafters.sampling import SamplingParams
from drafters.text import TextStream
from multidraft.engine.decoding import Decoding, generate
from multidraft.engine.output import Output, StopTexts, logprobs_of_prompt
from tests import tiny
from tests.engine_cases import GREEDY, SAMPLED, with_drafter

PROMPT = [2, 3, 4, 5]


def decode(pool, output, policy="round-robin", params=GREEDY):
    decoding = Decoding(pool, PROMPT, policy, params, output=output)
    decoding.run()
    return decoding


@pytest.mark.parametrize("policy", ["autoregressive", "round-robin", "draft-all", "normal-hedge"])
@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_an_output_ends_with_the_token_that_completes_a_text(pool, policy, params):
    whole = generate(pool, PROMPT, policy, params)
    for begin, end in ((3, 5), (6, 7), (10, 14)):
        stop = whole.text[begin:end]
        cut = whole.text.index(stop) + len(stop)  # no token spells more than one character
        out = decode(pool, Output((stop, "never" * 20)), policy, params).generation
        assert (out.text, out.status) == (whole.text[:cut], "stopped")
        assert out.token_ids == whole.token_ids[: len(out.token_ids)]
        assert out.token_ids == [token for r in out.rounds for token in r.tokens]
        assert all(r.accepted <= len(r.drafted) for r in out.rounds)


def test_a_text_within_an_accepted_draft_cuts_it_there(pool):
    whole = tiny.greedy(pool.target.model, PROMPT, 12)
    text = pool.decode(whole)
    stop = next(text[i : i + 3] for i in range(1, 8) if text.index(text[i : i + 3]) == i)
    scripted = with_drafter(pool, lambda context, length: Draft.chain(whole[len(context) - len(PROMPT) :][:length]))
    out = decode(scripted, Output((stop,)), "fixed:scripted", SamplingParams(12, draft_length=10)).generation
    assert out.text == text[: text.index(stop) + 3] and out.rounds[-1].own is None
    assert out.rounds[-1].accepted == out.rounds[-1].emitted < len(out.rounds[-1].drafted)


@pytest.mark.parametrize("policy", ["autoregressive", "round-robin", "draft-all"])
@pytest.mark.parametrize("after", range(8))
def test_texts_that_are_complete_within_the_first_tokens_are_passed_over(pool, policy, after):
    whole = generate(pool, PROMPT, policy, GREEDY)
    passed = len(pool.decode(whole.token_ids[:after]))
    for stop in (whole.text[3:5], whole.text[:1], whole.text[5:9]):
        ends = [at for at in range(passed + 1, len(whole.text) + 1) if whole.text[:at].endswith(stop)]
        out = decode(pool, Output((stop, "never" * 20), stop_after=after), policy).generation
        assert out.text == whole.text[: ends[0] if ends else None]
        assert out.status == ("stopped" if ends else "completed")


def test_characters_of_several_tokens_and_texts_of_several_characters():
    stop = StopTexts(("ab", "cde"), TextStream(tiny.tokenizer()))
    assert [stop.completed_by(token) for token in (4, 5, 3, 2, 3)] == [False, False, False, False, True]
    stop = StopTexts(("ab", "cdefg"), TextStream(tiny.tokenizer()), after=2)
    assert [stop.completed_by(token) for token in (2, 3, 4, 5, 2, 3)] == [False] * 5 + [True], "it is remembered"
    assert not StopTexts((), TextStream(tiny.tokenizer())).completed_by(2)


@pytest.fixture
def spaced(pool, monkeypatch):
    monkeypatch.setattr(pool, "tokenizer", tiny.spaced_tokenizer())
    monkeypatch.setattr(pool, "encode", lambda *_: [*PROMPT])
    return pool


def test_an_answer_goes_on_from_its_prompt_with_the_space_of_its_first_word(spaced, monkeypatch):
    alone = generate(spaced, PROMPT, "autoregressive", GREEDY)
    whole = spaced.decode([*PROMPT, *alone.token_ids])
    assert alone.prompt + alone.text == whole
    out = decode(spaced, Output((alone.text[:2],))).generation
    assert out.token_ids == alone.token_ids[:1] and alone.text[0] == " "
    monkeypatch.setattr(spaced.tokenizer, "chat_template", "{{ messages[0]['content'] }}")
    assert generate(spaced, "a", "autoregressive", GREEDY).text == alone.text[1:], "in chat form it begins anew"


def test_stop_tokens_can_be_passed_over(loaded_pool):
    stop_ids = loaded_pool.stop_ids
    try:
        loaded_pool.stop_ids = frozenset(generate(loaded_pool, PROMPT, "random", GREEDY).token_ids[:1])
        assert generate(loaded_pool, PROMPT, "random", GREEDY).status == "stopped"
        out = decode(loaded_pool, Output(("never" * 20,), stop_after=5)).generation
        assert (out.status, len(out.token_ids)) == ("stopped", 1), "stop_after is about texts"
        out = decode(loaded_pool, Output(ignore_end=True, stop_after=5)).generation
        assert (out.status, len(out.token_ids)) == ("completed", GREEDY.max_new_tokens)
        assert out.token_ids[0] in loaded_pool.stop_ids, "its probability is what it was"
    finally:
        loaded_pool.stop_ids = stop_ids


def test_an_empty_text_is_refused():
    with pytest.raises(UserError, match="stop text is empty"):
        Output(("a", ""))


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
@pytest.mark.parametrize("policy", ["autoregressive", "round-robin", "draft-all"])
def test_logprobs_are_those_of_the_target_at_temperature_1(pool, policy, params):
    decoding = decode(pool, Output(logprobs=3), policy, params)
    ids = decoding.generation.token_ids
    exact = log_probabilities(pool, [*PROMPT, *ids])[len(PROMPT) - 1 : -1]
    assert [told.token for told in decoding.logprobs] == ids
    for told, row in zip(decoding.logprobs, exact, strict=True):
        assert told.logprob == pytest.approx(float(row[told.token]), abs=1e-4)
        assert [value for _, value in told.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)
        assert told.top[0][0] == int(row.argmax())


def test_those_of_a_prompt(pool):
    ids = tiny.prompts(1, seed=4)[0] * 3
    first, *rest = [told for part in logprobs_of_prompt(pool, ids, 1) for told in part]
    assert (first.token, first.logprob, first.top) == (ids[0], None, ())
    exact = log_probabilities(pool, ids)
    for position, told in enumerate(rest):
        assert told.token == ids[position + 1]
        assert told.logprob == pytest.approx(float(exact[position, told.token]), abs=1e-4)
    assert len([told for part in logprobs_of_prompt(pool, [3] * 64, 1) for told in part]) == 64


def log_probabilities(pool, ids):
    with torch.inference_mode():
        return torch.log_softmax(pool.target.model(torch.tensor([ids])).logits[0], dim=-1)
