"""Answers of targets of many architectures, and heads that are trained for them."""

import random

import pytest
import torch
from transformers import GenerationConfig

from drafters.checkpoints.eagle import read_head
from drafters.errors import TrainingError
from drafters.models.trainable_head import TrainableHead, layers_to_read
from drafters.text import end_ids
from multidraft.training.answers import (
    Answer,
    Asking,
    answer_batch,
    answer_batches,
    check_read_out,
    portions,
    with_distributions,
)
from multidraft.training.data import by_length, cached_features
from multidraft.training.eagle import common_tokens, fit_head, save_head
from multidraft.training.loop import Budget
from multidraft.training.specialists import within
from tests import tiny
from tests.multidraft.training.targets import chat_tokenizer

KINDS = ("llama", *tiny.HUB_KINDS)


def model_of(kind, layers=2):
    return tiny.llama(1, layers=layers) if kind == "llama" else tiny.causal_lm(kind, 1, layers=layers)


def answers_of(target, count=4):
    prompts = tiny.prompts(count, seed=3, shortest=4, longest=9)
    encoded = answer_batch(target, chat_tokenizer(), prompts, 0.0, 8)
    return list(with_distributions(target, "letters", encoded, tiny.END))


def texts_of(answers, tokens_per_batch):
    return by_length(answers, tokens_per_batch)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_and_their_distributions_are_the_targets_own(kind):
    """Of prompts of several lengths, padded with what is also the end token; and one that holds it."""
    target = model_of(kind)
    check_read_out(target)
    prompts = [[3, 4, 5, 0, 6, 7], [8, 2], [5, 6, 7]]
    encoded = answer_batch(target, chat_tokenizer(), prompts, 0.0, 6)
    for prompt, one in zip(prompts, encoded):
        assert one.ids[: one.prompt_length] == prompt
        expected = tiny.greedy(target, prompt, 6)
        assert one.ids[len(prompt) :] == expected[: expected.index(0) + 1 if 0 in expected else 6]
    for answer in with_distributions(target, "letters", encoded, tiny.END):
        ids = answer.ids
        top = tiny.logits_of(target, ids)[answer.prompt_length - 1 : -1].softmax(-1).topk(8)
        torch.testing.assert_close(
            top.values / top.values.sum(-1, keepdim=True), answer.top_probs, rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_trained_for_any_target(kind, tmp_path):
    target = model_of(kind, layers=4)
    answers = answers_of(target)
    torch.manual_seed(0)
    head = TrainableHead(target, common_tokens(answers, 11, [0]))
    learnt = cached_features(target, texts_of(answers, 64), head.layers, 0, random.Random(0), memory=0)
    fit_head(head, target, learnt, Budget(1, tokens=200), 0.001)
    save_head(head, tmp_path)
    shape, tensors = read_head(tmp_path, target)
    assert shape.layers == head.layers and shape.vocab_size == len(head.ids)
    assert all(torch.isfinite(t.float()).all() for t in tensors.values())


def test_without_answers_there_are_no_batches():
    with pytest.raises(ValueError, match="no answers to learn from"):
        next(answer_batches([], 64, random.Random(0)))


def test_an_answer_ends_with_any_of_the_stop_tokens():
    target = tiny.llama(1)
    whole = answer_batch(target, chat_tokenizer(), [[3, 4]], 0.0, 10, stop_ids=[])[0].ids
    stop = whole[6]
    first = whole.index(stop, 2)
    assert answer_batch(target, chat_tokenizer(), [[3, 4]], 0.0, 10, stop_ids=[0, stop])[0].ids == whole[: first + 1]
    target.generation_config = GenerationConfig(eos_token_id=[4, 7])
    assert end_ids(target, chat_tokenizer()) == {0, 4, 7}


def test_samples_come_from_the_whole_distribution():
    """A model's own sampling settings, here to take the likeliest token only, do not count."""
    target = tiny.llama(1, sharpness=1.0)
    target.generation_config = GenerationConfig(top_k=1, top_p=0.01, repetition_penalty=5.0, do_sample=True)
    torch.manual_seed(0)
    drawn = answer_batch(target, chat_tokenizer(), [[3, 4]] * 200, 1.0, 1, stop_ids=[])
    counts = torch.bincount(torch.tensor([e.ids[-1] for e in drawn]), minlength=tiny.VOCAB) / 200
    expected = tiny.logits_of(target, [3, 4])[-1].softmax(-1)
    assert (counts - expected).abs().max() < 0.12 and (counts > 0).sum() > 6


def test_all_prompts_are_asked_at_all_temperatures():
    prompts = {"a": [[1] * n for n in (5, 3, 9, 1, 2)], "b": [[2]]}
    found = portions(prompts, Asking((0.0, 0.7), batch=2))
    assert [p.number for p in found] == list(range(8)) and [p.temperature for p in found] == [0.0] * 4 + [0.7] * 4
    for temperature in (0.0, 0.7):
        asked = [ids for p in found if p.temperature == temperature and p.task == "a" for ids in p.prompts]
        assert asked == sorted(prompts["a"], key=len)


def test_logits_made_in_another_way_are_refused():
    target = tiny.llama(1)
    forward = target.forward
    target.forward = lambda *a, **k: _scaled(forward(*a, **k))
    with pytest.raises(TrainingError, match="LlamaForCausalLM makes its logits in a way of its own"):
        check_read_out(target)


def _scaled(output):
    output.logits = 2 * output.logits
    return output


def test_answers_for_a_smaller_vocabulary():
    answer = Answer([1, 2, 3], 1, "a", torch.tensor([[1, 9], [2, 3]]), torch.tensor([[0.5, 0.5], [0.4, 0.6]]))
    small = within(answer, 4)
    assert small.top_ids.tolist() == [[1, 3], [2, 3]]
    torch.testing.assert_close(small.top_probs, torch.tensor([[1.0, 0.0], [0.4, 0.6]]))
    assert within(answer, 3) is None


def test_hidden_states_are_kept_as_far_as_memory_goes(monkeypatch):
    """Each epoch has every batch; those that are kept are read once."""
    target = tiny.llama(1, layers=4)
    batches = texts_of(answers_of(target, 6), 20)
    reads = []
    forward = target.model.forward
    target.model.forward = lambda *a, **k: reads.append(1) or forward(*a, **k)
    one = next(iter(cached_features(target, batches, (0, 1, 2), 0, random.Random(0)))).nbytes
    for memory, expected in [(10**9, len(batches)), (0, 3 * len(batches)), (int(1.5 * one), None)]:
        reads.clear()
        source = cached_features(target, batches, (0, 1, 2), 0, random.Random(0), memory)
        seen = [next(source).ids.shape[1] for _ in range(3 * len(batches))]
        assert sorted(seen[: len(batches)]) == sorted(seen[len(batches) : 2 * len(batches)])
        assert len(reads) == expected or (expected is None and len(batches) < len(reads) < 3 * len(batches))


@pytest.mark.parametrize(("count", "layers"), [(1, (0, 0, 0)), (2, (0, 1, 0)), (4, (2, 2, 1)), (32, (2, 16, 29))])
def test_layers_that_a_head_reads(count, layers):
    assert layers_to_read(count) == layers and max(layers) < count
