"""What drafters are given to learn from: the target's own likeliest tokens, of all that is emitted and of no other."""

import pytest
import torch

from drafters.base import TOP
from drafters.draft import Draft
from drafters.pool import Pool
from drafters.proposing import PointMassDrafter
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import Decoding
from tests import tiny


class Listener(PointMassDrafter):
    """Drafts a tree whose second branch is often the right one, and keeps its lessons."""

    name, kind, learns = "listener", "custom", True

    def __init__(self, model):
        self.model, self.lessons = model, []

    def draft(self, context, length):
        first, second = tiny.greedy(self.model, context, 2) if length > 1 else (1, 1)
        return Draft((1, first, second), (-1, -1, 1)) if length > 1 else Draft.chain([first])

    def learn(self, lesson):
        self.lessons.append(lesson)


def heard(pool):
    """The pool with a listener beside its drafters."""
    listener = Listener(pool.target.model)
    return Pool(pool.target, [*pool.drafters, listener], pool.tokenizer, pool.card), listener


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("policy", ["autoregressive", "fixed:listener", "fixed:near", "draft-all"])
def test_a_lesson_is_what_the_target_finds_likely_at_each_token(pool, policy, temperature):
    own, listener = heard(pool)
    for prompt in tiny.prompts(2, seed=3):
        out = Decoding(own, prompt, policy, SamplingParams(12, temperature, draft_length=4)).run()
        (lesson,) = listener.lessons
        listener.lessons.clear()
        assert (lesson.prompt, lesson.answer) == (prompt, out.token_ids)
        logits = tiny.logits_of(pool.target.model, [*prompt, *out.token_ids])[len(prompt) - 1 : -1]
        expected = logits.softmax(-1).topk(TOP)
        assert lesson.top_ids.tolist() == expected.indices.tolist()
        torch.testing.assert_close(lesson.top_probs, expected.values, rtol=1e-4, atol=1e-5)


def test_nothing_is_learnt_where_that_is_not_wanted(pool):
    own, listener = heard(pool)
    own.previous.clear()
    params = SamplingParams(4, draft_length=2)
    Decoding(own, [2, 3], "normal-hedge", params, learn=False).run()
    assert not listener.lessons and not own.previous
    Decoding(own, [2, 3], "normal-hedge", params).run()
    assert listener.lessons and own.previous


def test_an_answer_that_breaks_off_is_no_lesson(pool):
    own, listener = heard(pool)
    rounds = Decoding(own, [2, 3], "autoregressive", SamplingParams(8))
    next(rounds)
    rounds._rounds.close()
    assert not listener.lessons


def test_tokens_alone_where_no_drafter_asks_for_more(pool):
    own, listener = heard(pool)
    listener.learns = False
    Decoding(own, [2, 3], "autoregressive", SamplingParams(4)).run()
    assert listener.lessons[0].top_ids is None and len(listener.lessons[0].answer) == 4
