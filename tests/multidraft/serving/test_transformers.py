"""``custom_generate`` for models of transformers, beside the library's own decoding."""

import pytest
import torch
from transformers import (
    GenerationConfig,
    StoppingCriteria,
    StoppingCriteriaList,
    SynthIDTextWatermarkingConfig,
    set_seed,
)
from transformers.generation.streamers import BaseStreamer

from drafters.errors import PoolError, UserError
from multidraft.serving.transformers import Speculate
from tests import tiny

PROMPTS = [torch.tensor([ids]) for ids in tiny.prompts(4, seed=5, shortest=3, longest=12)]
TOKENS = 24
WATERMARK = SynthIDTextWatermarkingConfig(keys=[654, 400], ngram_len=3)


@pytest.fixture
def model(pool):
    return pool.target.model


@pytest.fixture
def speculate(pool_card):
    return Speculate(pool_card, "round-robin")


def greedy(model, prompt, **settings):
    values = {"max_new_tokens": TOKENS, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    mask = torch.ones_like(prompt)
    return model.generate(prompt, attention_mask=mask, **{**values, **settings}).tolist()


def test_greedy_output_is_that_of_the_library_alone_and_assisted(model, pool, pool_card):
    assistant = pool.drafters[0].model.model
    plain = [greedy(model, prompt) for prompt in PROMPTS]
    assert [greedy(model, prompt, assistant_model=assistant) for prompt in PROMPTS] == plain
    for policy in ("round-robin", "normal-hedge", "rate-hedge", "draft-all"):
        speculate = Speculate(pool_card, policy)
        for prompt, expected in zip(PROMPTS, plain, strict=True):
            assert greedy(model, prompt, custom_generate=speculate) == expected, policy
            assert len(speculate.generation.rounds) < TOKENS or policy == "rate-hedge"


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.5},
        {"no_repeat_ngram_size": 2},
        {"min_new_tokens": 20, "eos_token_id": [3, 7]},
        {"eos_token_id": [3, 7]},
        {"bad_words_ids": [[4], [5, 6]]},
        {"max_new_tokens": 1},
    ],
    ids=str,
)
def test_processors_and_stop_tokens_are_respected(model, speculate, settings):
    for prompt in PROMPTS:
        assert greedy(model, prompt, custom_generate=speculate, **settings) == greedy(model, prompt, **settings)


@pytest.mark.parametrize("settings", [{}, {"do_sample": True}], ids=str)
def test_what_the_target_would_have_written_is_told_after_the_processors(model, speculate, settings):
    banned = greedy(model, PROMPTS[0])[0][-6:]
    greedy(model, PROMPTS[0], custom_generate=speculate, bad_words_ids=[[token] for token in banned], **settings)
    told = {token for round in speculate.generation.rounds for token in round.choices}
    assert told and not told & {*banned}


class AfterTwo(StoppingCriteria):
    """Ends a text that holds a token twice."""

    def __call__(self, input_ids, scores, **_):
        return torch.tensor([row[len(row) // 2 :].count(row[-1]) > 1 for row in input_ids.tolist()])


def test_stopping_criteria_end_the_output_within_a_round(model, speculate):
    for prompt in PROMPTS:
        criteria = {"stopping_criteria": StoppingCriteriaList([AfterTwo()])}
        assert greedy(model, prompt, custom_generate=speculate, **criteria) == greedy(model, prompt, **criteria)


class Collected(BaseStreamer):
    def __init__(self):
        self.ids, self.ended = [], False

    def put(self, value):
        self.ids += value.flatten().tolist()

    def end(self):
        self.ended = True


def test_a_streamer_gets_the_prompt_and_each_token(model, speculate):
    streamer = Collected()
    (output,) = greedy(model, PROMPTS[0], custom_generate=speculate, stream_to=streamer)
    assert streamer.ids == output and streamer.ended


SAMPLED = {"do_sample": True, "temperature": 0.7, "top_k": 4, "top_p": 0.9}


@pytest.mark.parametrize(
    "settings", [SAMPLED, {**SAMPLED, "min_p": 0.1}, {**SAMPLED, "repetition_penalty": 1.3}], ids=str
)
def test_sampled_tokens_are_distributed_as_the_librarys(model, speculate, settings):
    settings, prompt = {**settings, "max_new_tokens": 3}, PROMPTS[0]
    set_seed(0)
    theirs = greedy(model, prompt, num_return_sequences=4000, **settings)
    ours = [greedy(model, prompt, custom_generate=speculate, **settings)[0] for _ in range(150)]
    found = torch.zeros(2, 3, tiny.VOCAB)
    for way, outputs in enumerate((theirs, ours)):
        for output in outputs:
            for position, token in enumerate(output[prompt.shape[1] :]):
                found[way, position, token] += 1 / len(outputs)
    # Total variation of ours from its distribution, which theirs are enough to tell: 0.5 sqrt(V / 150) at most.
    assert (0.5 * (found[0] - found[1]).abs().sum(-1)).max() < 0.12
    assert (found[:, 0] > 0).sum(-1).max() <= 4


def test_a_seed_makes_it_repeatable(model, speculate):
    outputs = []
    for _ in range(2):
        set_seed(4)
        outputs.append(greedy(model, PROMPTS[0], custom_generate=speculate, **SAMPLED))
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("prompt", "settings", "message"),
    [
        (torch.tensor([[2, 3], [4, 5]]), {}, "one prompt at a time, got a batch of 2"),
        (PROMPTS[0], {"num_return_sequences": 2, "do_sample": True}, "num_return_sequences must be 1, got 2; call"),
        (PROMPTS[0], {"num_beams": 3}, "num_beams must be 1, got 3"),
        (PROMPTS[0], {"return_dict_in_generate": True}, "returns token ids"),
        (PROMPTS[0], {"guidance_scale": 1.5}, "UnbatchedClassifierFreeGuidanceLogitsProcessor, which carries a state"),
        (PROMPTS[0], {"watermarking_config": WATERMARK}, "SynthIDTextWatermarkLogitsProcessor, which carries a state"),
        (PROMPTS[0], {"attention_mask": torch.tensor([[0] + [1] * (PROMPTS[0].shape[1] - 1)])}, "without padding"),
    ],
)
def test_what_it_cannot_do_is_refused(model, speculate, prompt, settings, message):
    values = {"attention_mask": torch.ones_like(prompt), "pad_token_id": 0, "eos_token_id": None, **settings}
    with pytest.raises(UserError, match=message):
        model.generate(prompt, max_new_tokens=4, custom_generate=speculate, **values)


def test_a_draft_of_no_tokens_is_refused(model, pool_card):
    with pytest.raises(ValueError, match="draft_length must be at least 1, got 0"):
        model.generate(torch.tensor([[2, 3]]), max_new_tokens=3, custom_generate=Speculate(pool_card, draft_length=0))


def test_a_pool_for_another_target_is_refused(speculate):
    with pytest.raises(PoolError, match="a vocabulary of 12 tokens, the model one of 5"):
        tiny.llama(9, vocab=5).generate(
            torch.tensor([[2, 3]]),
            generation_config=GenerationConfig(max_new_tokens=3, pad_token_id=0),
            custom_generate=speculate,
        )
