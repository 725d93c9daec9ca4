"""The pocket pool's heads: they learn from answers and references, resume, and are written as they are read."""

import random

import pytest
import torch
from torch.nn import functional

from drafters.checkpoints.eagle import read_head
from drafters.models.eagle_head import EagleHead
from multidraft.training.answers import Answer
from multidraft.training.loop import Budget
from multidraft.training.pocket import models
from tests import tiny


@pytest.fixture(scope="module")
def target():
    return tiny.llama(1, layers=6)


def test_a_head_is_trained_resumed_and_read(target, tmp_path, monkeypatch):
    """Its loss falls; a resumed run goes on with the same vocabulary; its folder can be loaded to draft."""
    rng = random.Random(0)
    answers = []
    for prompt in tiny.prompts(12, seed=2, shortest=6, longest=8):
        ids = [*prompt, *tiny.greedy(target, prompt, 20)]
        answers.append(Answer(ids, len(prompt), "letters", torch.zeros(20, 1).long(), torch.ones(20, 1)))
    monkeypatch.setattr(models, "MEMORY", 300_000)
    monkeypatch.setattr(models, "reference_texts", lambda *_, **__: iter(lambda: rng.choice(answers), None))
    monkeypatch.setattr(models, "SPECIALIST_VOCABULARY", 10)
    monkeypatch.setattr(models, "HEAD_BATCH", 256)
    monkeypatch.setattr(models, "HEAD_LR", 1e-2)
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = "<|end|>"
    checkpoint = tmp_path / "letters-head.pt"

    def run(tokens):
        heads = models.Heads(target, tokenizer, answers)
        return heads.train("letters", Budget(5.0, tokens, checkpoint), tmp_path / "head")

    def loss(head):
        ids = torch.tensor([answers[0].ids])
        wanted = torch.zeros(1, ids.shape[1] - 1, dtype=torch.bool)
        wanted[0, answers[0].prompt_length - 1 :] = True
        with torch.no_grad():
            goal = target(input_ids=ids).logits[0, 1:][wanted[0]][:, head.ids].softmax(-1)
            embedded = functional.embedding(ids[:, 1:], target.get_input_embeddings().weight)
            features = tiny.states_of(target, ids, head.layers)[:, :-1]
            return float(functional.cross_entropy(next(iter(head(features, embedded, wanted, 1))), goal))

    first = run(256)
    second = run(4000)
    assert torch.equal(first.ids, second.ids)
    assert loss(second) < 0.8 * loss(first)
    shape, tensors = read_head(tmp_path / "head", target)
    assert (
        shape.vocab_size == len(second.ids)
        and EagleHead(shape, tensors, target).to_target.tolist() == second.ids.tolist()
    )
    third = run(4000)  # nothing left to do: what is written again is what was learnt
    assert torch.equal(third.lm_head.weight, second.lm_head.weight)
    with pytest.raises(ValueError, match="no answers of 'poems'"):
        models.Heads(target, tokenizer, answers).train("poems", Budget(1.0), tmp_path / "none")


def test_medusa_heads_are_trained_on_answers_and_reference_texts(target, tmp_path, monkeypatch, capsys):
    texts = [[*prompt, *tiny.greedy(target, prompt, 12)] for prompt in tiny.prompts(6, seed=3, shortest=6, longest=8)]
    answers = [Answer(ids, 6, "letters", torch.zeros(len(ids) - 6, 1), torch.ones(1, 1)) for ids in texts]
    references = iter(lambda: answers[0], None)
    monkeypatch.setattr(models, "reference_texts", lambda *_, **__: references)
    monkeypatch.setattr(models, "MEMORY", 100_000)
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    monkeypatch.setattr(models, "HEAD_BATCH", 256)
    models.Heads(target, tokenizer, answers).train_medusa(Budget(0.01), tmp_path)
    assert capsys.readouterr().out.startswith("read ") and (tmp_path / "medusa_lm_head.safetensors").is_file()
    with pytest.raises(ValueError, match="no answers of 'general'"):
        models.Heads(target, tokenizer, []).train_medusa(Budget(0.01), tmp_path)
