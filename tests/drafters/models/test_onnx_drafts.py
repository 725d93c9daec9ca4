"""Drafts on ONNX Runtime: several at once are those of each text alone, with one forward for each token of all."""

import math
from dataclasses import replace

import pytest
import torch

from drafters.models.decoder import Decoder, DraftOptions
from drafters.models.feeds import DraftFeed
from drafters.models.onnx_decoder import OnnxDecoder
from drafters.models.onnx_drafts import Drafts
from drafters.models.onnx_model import OnnxModel
from drafters.models.token_map import ConfinedHead
from drafters.sampling import SamplingParams
from tests import tiny

CONTEXTS = tiny.prompts(5, seed=3, shortest=4, longest=30)
GREEDY = DraftOptions(6, SamplingParams(), torch.Generator(), tiny.VOCAB)
ASKED = [
    GREEDY,
    replace(GREEDY, length=9, with_q=True),
    replace(GREEDY, length=1),
    replace(GREEDY, length=8, log_confidence=math.log(0.5)),
    replace(GREEDY, length=12, log_confidence=math.log(0.05), with_q=True),
]


def confined():
    model = tiny.llama(2)
    model.lm_head = ConfinedHead(model.lm_head, list(range(5, tiny.VOCAB, 2)))
    return model


@pytest.fixture(
    params=[lambda: tiny.llama(1), lambda: tiny.causal_lm("mistral", 1), confined],
    ids=["llama", "mistral", "token map"],
)
def texts(request):
    """Texts under one model, each with its context read but for the last token."""
    decoder = OnnxDecoder(request.param())
    texts = [decoder, *(decoder.twin() for _ in CONTEXTS[1:])]
    for text, context in zip(texts, CONTEXTS, strict=True):
        text.forward(context[:-1], 0, last=1)
    return texts


def feed_of(text, context, options):
    return DraftFeed(text._slot.number, context[-1:], len(context) - 1, options)


def step_by_step(text, context, options):
    """A forward for each token, which is looked at before the next."""
    return Decoder.draft(text, context[-1:], len(context) - 1, options)


@pytest.mark.parametrize(
    "params", [SamplingParams(temperature=1.0), SamplingParams(temperature=0.7, top_k=5, top_p=0.9)]
)
def test_sampled_drafts_are_drawn_from_each_texts_own_generator(texts, params):
    def asked():
        return [
            replace(GREEDY, length=length, params=params, generator=torch.Generator().manual_seed(length))
            for length in (6, 9, 1, 8, 12)
        ]

    alone = [step_by_step(*each) for each in zip(texts, CONTEXTS, asked(), strict=True)]
    for chosen in ([0, 1, 2, 3, 4], [3]):
        found = Drafts(texts[0].runs).run([feed_of(texts[i], CONTEXTS[i], asked()[i]) for i in chosen])
        for draft, place in zip(found, chosen, strict=True):
            assert draft.sampled and draft.tokens == alone[place].tokens
            torch.testing.assert_close(draft.q, alone[place].q, rtol=1e-4, atol=2e-5)


@pytest.fixture
def forwards(monkeypatch):
    """How many tokens each text feeds, by forward, but for the steps of drafts."""
    found, run = [], OnnxModel.run
    monkeypatch.setattr(
        OnnxModel, "run", lambda self, feeds: (found.append([len(feed.ids) for feed in feeds]), run(self, feeds))[1]
    )
    return found


def test_drafts_of_several_texts_are_those_of_each_alone(texts, forwards):
    alone = [step_by_step(*each) for each in zip(texts, CONTEXTS, ASKED, strict=True)]
    assert len({len(draft) for draft in alone}) > 2, "they end at different depths"
    feeds = [feed_of(*each) for each in zip(texts, CONTEXTS, ASKED, strict=True)]
    for chosen in ([0, 1, 2, 3, 4], [3, 1], [0, 2, 4], [4]):  # with texts between them that draft nothing
        forwards.clear()
        found = Drafts(texts[0].runs).run([feeds[place] for place in chosen])
        assert forwards == [[1] * len(chosen)]
        for draft, place in zip(found, chosen, strict=True):
            assert draft.tokens == alone[place].tokens
            assert (draft.q is None) == (alone[place].q is None)
            if draft.q is not None:
                torch.testing.assert_close(draft.q, alone[place].q, rtol=1e-4, atol=2e-5)


def test_what_was_drafted_leaves_the_texts_as_they_are(texts):
    """Their next forwards are as if nothing had been drafted, in a cache that had to grow for it as well."""
    long = replace(GREEDY, length=600)
    feeds = [feed_of(text, context, long) for text, context in zip(texts, CONTEXTS, strict=True)]
    expected = [text.forward([c[-1], 7, 9], len(c) - 1) for text, c in zip(texts, CONTEXTS, strict=True)]
    assert texts[0].runs.room < 600
    assert {len(draft) for draft in Drafts(texts[0].runs).run(feeds[:3])} == {600}
    for text, context, logits in zip(texts, CONTEXTS, expected, strict=True):
        found = text.forward([context[-1], 7, 9], len(context) - 1)
        torch.testing.assert_close(found, logits, rtol=1e-4, atol=2e-5)


def test_a_long_context_is_read_before_the_draft(forwards):
    decoder, context = OnnxDecoder(tiny.llama(1, window=200)), [1 + i % 9 for i in range(150)]
    expected = Decoder.draft(decoder, context, 0, GREEDY)
    forwards.clear()
    assert decoder.draft(context, 0, GREEDY).tokens == expected.tokens
    assert forwards == [[149], [1]]
