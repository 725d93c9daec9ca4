"""Texts that another engine writes."""

from drafters.sampling import SamplingParams
from multidraft.engine.following import Following
from tests import tiny


def test_the_text_of_tokens_that_were_written_unasked_goes_on_from_what_is_before_them(pool, monkeypatch):
    broken_off = ["<|end|>", "▁a", "\N{REPLACEMENT CHARACTER}"]
    monkeypatch.setattr(pool, "tokenizer", tiny.spaced_tokenizer(broken_off))
    following = Following(pool, [1, 1, 2, 1], "fixed:near", SamplingParams(8), seed=0, unseen=3)
    next(following)
    assert [r.text for r in following.generation.rounds] == [" a", "", "\N{REPLACEMENT CHARACTER} a"]
