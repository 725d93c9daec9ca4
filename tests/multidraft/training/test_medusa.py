"""Heads that learn from a target's answers, at a size of a few thousand parameters."""

import json
import random

import pytest
import torch
from safetensors.torch import load_file

from drafters.errors import PoolError
from drafters.kinds.medusa import MedusaDrafter
from drafters.learning.distil import collate
from drafters.models.ngram import NGram, count_ngrams
from drafters.models.target import Target
from multidraft.training import loop
from multidraft.training.answers import Answer
from multidraft.training.data import by_length, cached_features, read
from multidraft.training.loop import Budget
from multidraft.training.medusa import TrainableMedusa, build_ngram, fit_heads, heads_loss
from tests import tiny
from tests.medusa import load_heads

TOP = 5


def answer_of(model, prompt, tokens):
    ids = [*prompt, *tiny.greedy(model, prompt, tokens)]
    probs = torch.softmax(tiny.logits_of(model, ids)[len(prompt) - 1 : -1], dim=-1).topk(TOP)
    kept = probs.values / probs.values.sum(dim=-1, keepdim=True)
    return Answer(ids, len(prompt), "letters", probs.indices.clone(), kept.clone())


@pytest.fixture(scope="module")
def model():
    return tiny.llama(1)


@pytest.fixture(scope="module")
def answers(model):
    """Some of which are shorter than there are heads."""
    prompts = tiny.prompts(24, seed=2, shortest=2)
    return [answer_of(model, prompt, (1, 2, 30)[i % 3]) for i, prompt in enumerate(prompts)]


def trained(model, answers, folder, tokens, checkpoint=None, layers=1):
    last = [model.config.num_hidden_layers]
    batches = by_length(answers, 200)
    learnt = cached_features(model, batches, last, 0, random.Random(0))
    network = TrainableMedusa(model, 3, layers)
    fit_heads(network, model, learnt, Budget(5.0, tokens, checkpoint), 3e-2)
    network.save(folder)


@pytest.mark.parametrize("half", [False, True])
def test_features_are_the_targets_states_at_the_precision_of_the_device(model, answers, monkeypatch, half):
    monkeypatch.setattr(loop, "half_precision_pays", lambda device: half)
    batch = read(model, collate(answers[:5], 0), [model.config.num_hidden_layers])
    with torch.no_grad(), loop.autocast("cpu"):
        states = model(batch.ids, output_hidden_states=True).hidden_states[-1]
    # One unit in the last place of bfloat16, in which features are stored.
    torch.testing.assert_close(batch.features.float(), states[:, :-1].float(), rtol=2**-7, atol=1e-6)
    torch.testing.assert_close(batch.last.float(), states[:, 1:][batch.wanted].float(), rtol=2**-7, atol=1e-6)


def test_the_loss_is_that_of_each_head_at_each_position(model, answers):
    """By loops over positions: context ``ids[:s]`` is continued from the state of its last token but one."""
    weights = torch.randn(3, tiny.VOCAB, 24, generator=torch.Generator().manual_seed(0))
    chosen, losses = answers[:5], {0: [], 1: [], 2: []}
    for answer in chosen:
        ids, first = answer.ids, answer.prompt_length
        states = tiny.states_of(model, ids, [-1])
        told = torch.softmax(tiny.logits_of(model, ids), dim=-1)
        for s in range(first, len(ids)):
            for head in range(3):
                if s + head < len(ids):  # the draft's token number `head` stands there
                    log = torch.log_softmax(weights[head] @ states[s - 2], dim=-1)
                    losses[head].append(-(told[s + head - 1] * log).sum())
    expected = sum(0.8**head * torch.stack(found).mean() for head, found in losses.items())

    def loss_of(answers):
        batch = read(model, collate(answers, 0), [model.config.num_hidden_layers])
        states = tiny.states_of(model, batch.ids, [-1])  # in float32, as features need not be
        goal = model.lm_head(states[:, 1:][batch.wanted]).softmax(dim=-1).detach()
        return heads_loss(lambda hidden, head: hidden @ weights[head].T, states[:, :-1], batch.wanted, goal, 3)

    torch.testing.assert_close(loss_of(chosen), expected)
    assert loss_of([answer for answer in chosen if len(answer.top_ids) == 1]).isfinite()  # no place for a second head


def accepted(model, folder, answers):
    """Share of the answers' tokens that drafts of one token begun at each would hit, and of those of three tokens."""
    target = Target(model)
    drafter = MedusaDrafter("heads", load_heads("medusa", folder, model), target, tiny.VOCAB)
    shares = []
    for length in (1, 3):
        counts = [drafter.acceptances(a.ids, a.prompt_length, length).accepted for a in answers]
        shares.append(sum(int(c.sum()) for c in counts) / sum(len(c) for c in counts) / length)
    return shares


def test_heads_learn_what_the_target_will_say(model, answers, tmp_path):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trained(model, answers, tmp_path / "start", 1)
    trained(model, answers, tmp_path / "end", 20_000)
    start, end = (accepted(model, tmp_path / name, answers) for name in ("start", "end"))
    assert end[0] > start[0] + 0.3 and end[1] > start[1] + 0.25
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_medusa_heads_are_written_as_published(model, answers, tmp_path):
    trained(model, answers, tmp_path, 1, layers=2)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == {"base_model_name_or_path": "", "medusa_num_heads": 3, "medusa_num_layers": 2}
    tensors = load_file(tmp_path / "medusa_lm_head.safetensors")
    expected = {
        name: shape
        for head in range(3)
        for name, shape in {
            f"{head}.0.linear.weight": (24, 24),
            f"{head}.0.linear.bias": (24,),
            f"{head}.1.linear.weight": (24, 24),
            f"{head}.1.linear.bias": (24,),
            f"{head}.2.weight": (tiny.VOCAB, 24),
        }.items()
    }
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == expected
    assert all(tensor.dtype == torch.bfloat16 for tensor in tensors.values())


def test_a_run_continues_from_its_checkpoint(model, answers, tmp_path, capsys):
    checkpoint = tmp_path / "work" / "heads.pt"
    trained(model, answers, tmp_path / "once", 3000, checkpoint=checkpoint)
    capsys.readouterr()
    trained(model, answers, tmp_path / "again", 3000, checkpoint=checkpoint)
    assert capsys.readouterr().out.startswith("resumed at step ")
    once, again = (load_file(tmp_path / name / "medusa_lm_head.safetensors") for name in ("once", "again"))
    assert all(torch.equal(once[name], again[name]) for name in once)  # nothing was left to do


def test_ngrams_are_those_of_the_answers(answers, tmp_path):
    path = tmp_path / "work" / "ngrams.safetensors"
    model = build_ngram(answers, tiny.VOCAB, path)
    texts = [answer.ids[answer.prompt_length - 2 :] for answer in answers]
    expected, again = count_ngrams(texts, tiny.VOCAB), NGram.open(path, tiny.VOCAB)
    for before in ([], [3], [4, 5], texts[2][-2:]):
        values = expected.log_probabilities(before, range(tiny.VOCAB)).tolist()
        assert model.log_probabilities(before, range(tiny.VOCAB)).tolist() == values
        assert again.log_probabilities(before, range(tiny.VOCAB)).tolist() == values
    with pytest.raises(PoolError, match="was made for 12 tokens, but the target has 13"):
        NGram.open(path, 13)
