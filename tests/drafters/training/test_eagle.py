"""Training of EAGLE-3 heads: each step of the training is the step that the head will make when it drafts."""

import random

import pytest
import torch
from torch.nn import functional

import drafters.training.eagle as training
from drafters.eagle_checkpoint import read_head
from drafters.eagle_head import EagleHead
from drafters.training import feature_batches
from drafters.training.answers import Answer
from drafters.training.data import Encoded
from drafters.training.eagle import TrainableHead, common_tokens, train_head
from tests import tiny

IDS = torch.tensor([0, 1, 3, 4, 5, 7, 8, 9, 10])


@pytest.fixture(scope="module")
def target():
    return tiny.llama(1, layers=6)


def states_of(target, layers, ids):
    with torch.no_grad():
        states = target(input_ids=ids, output_hidden_states=True).hidden_states
    return torch.cat([states[layer] for layer in layers], dim=-1)


def test_each_step_is_the_one_it_will_make_when_it_drafts(target, tmp_path):
    """Against the head as it is loaded to draft, fed the same tokens one by one from each place of a text."""
    torch.manual_seed(3)
    head = TrainableHead(target, IDS)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
            parameter.copy_(parameter.to(torch.bfloat16))  # as it will be saved
    head.save(tmp_path)
    shape, tensors = read_head(tmp_path, target)
    assert shape.layers == head.layers == (2, 3, 3) and shape.vocab_size == len(IDS)
    drafting = EagleHead(shape, tensors, target)
    assert torch.equal(drafting.to_target, IDS)

    texts = torch.tensor(tiny.prompts(2, seed=8, shortest=14, longest=14))
    features = states_of(target, head.layers, texts)[:, :-1]
    embedded = functional.embedding(texts[:, 1:], target.get_input_embeddings().weight)
    wanted = torch.zeros(2, 13, dtype=torch.bool)
    wanted[0, 7:] = wanted[1, 9:12] = True
    with torch.no_grad():
        steps = list(head(features, embedded, wanted, 4))
    for step, logits in enumerate(steps):
        assert logits.shape == (9, len(IDS))
        for row, (text, pair) in enumerate(wanted.nonzero().tolist()):
            known = pair - step  # the last pair with a hidden state of the target's
            ids = texts[text, 1 : known + 2]
            state = drafting.step(ids, drafting.fuse(features[text, : known + 1]), 0)[-1:]
            for ahead in range(step):
                state = drafting.step(texts[text, known + 2 + ahead : known + 3 + ahead], state, known + 1 + ahead)
            torch.testing.assert_close(logits[row], drafting.logits(state)[0], rtol=1e-3, atol=1e-3)


def test_what_stands_before_the_answers_changes_nothing_but_the_cost(target):
    torch.manual_seed(4)
    head = TrainableHead(target, IDS)
    texts = torch.tensor(tiny.prompts(1, seed=9, shortest=12, longest=12))
    features = states_of(target, head.layers, texts)[:, :-1]
    embedded = functional.embedding(texts[:, 1:], target.get_input_embeddings().weight)
    some, all_pairs = torch.zeros(1, 11, dtype=torch.bool), torch.ones(1, 11, dtype=torch.bool)
    some[0, 8:] = True
    with torch.no_grad():
        few, many = list(head(features, embedded, some, 3)), list(head(features, embedded, all_pairs, 3))
    for a, b in zip(few, many, strict=True):
        torch.testing.assert_close(a, b[8:])


def test_common_tokens():
    texts = [Encoded([9, 9, 9, 1, 2, 2, 3], 3), Encoded([9, 5, 2, 3], 1)]
    assert common_tokens(texts, 3, [0]).tolist() == [0, 2, 3]
    assert common_tokens(texts, 9, [0]).tolist() == [0, 1, 2, 3, 5]


def test_a_head_is_trained_resumed_and_read(target, tmp_path, monkeypatch):
    """Its loss falls; a run resumed from its checkpoint goes on with the same words; its folder is that of a head."""
    rng = random.Random(0)
    answers = []
    for prompt in tiny.prompts(12, seed=2, shortest=6, longest=8):
        ids = [*prompt, *tiny.greedy(target, prompt, 20)]
        answers.append(Answer("letters", Encoded(ids, len(prompt)), torch.zeros(20, 1).long(), torch.ones(20, 1)))
    monkeypatch.setattr(feature_batches, "MEMORY", 300_000)
    for module in (training, feature_batches):
        monkeypatch.setattr(module, "reference_texts", lambda *_, **__: iter(lambda: rng.choice(answers).encoded, None))
    monkeypatch.setattr(training, "SPECIALIST_VOCABULARY", 10)
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = "<|end|>"
    checkpoint = tmp_path / "letters-head.pt"

    def run(tokens):
        return train_head(
            target, tokenizer, "letters", answers, 5.0, tmp_path / "head",
            tokens=tokens, checkpoint=checkpoint, tokens_per_batch=256, lr=1e-2, log=lambda line: None,
        )  # fmt: skip

    def loss(head):
        ids = torch.tensor([answers[0].encoded.ids])
        wanted = torch.zeros(1, ids.shape[1] - 1, dtype=torch.bool)
        wanted[0, answers[0].encoded.prompt_length - 1 :] = True
        with torch.no_grad():
            goal = target(input_ids=ids).logits[0, 1:][wanted[0]][:, head.ids].softmax(-1)
            embedded = functional.embedding(ids[:, 1:], target.get_input_embeddings().weight)
            features = states_of(target, head.layers, ids)[:, :-1]
            return float(functional.cross_entropy(next(iter(head(features, embedded, wanted, 1))), goal))

    first = run(256)
    second = run(8000)
    assert torch.equal(first.ids, second.ids)
    assert loss(second) < 0.8 * loss(first)
    shape, tensors = read_head(tmp_path / "head", target)
    assert (
        shape.vocab_size == len(second.ids)
        and EagleHead(shape, tensors, target).to_target.tolist() == second.ids.tolist()
    )
    third = run(8000)  # nothing left to do: what is written again is what was learnt
    assert torch.equal(third.lm_head.weight, second.lm_head.weight)
    with pytest.raises(ValueError, match="no answers of 'poems'"):
        train_head(target, tokenizer, "poems", answers, 1.0, tmp_path / "none")
