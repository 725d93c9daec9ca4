"""Self-distillation: the target's own answers with its own distributions, and drafters that learn from them."""

import random

import pytest
import torch

from drafters.base import TOP
from drafters.text import chat_ids
from multidraft.training.answers import answer_batch, load_answers, save_answers
from multidraft.training.loop import Budget
from multidraft.training.plan import make_llama
from multidraft.training.pocket.corpus import FAMILIES
from multidraft.training.pocket.models import DRAFTER_SHAPE, collect_answers, score_target, train_drafter


@pytest.fixture(scope="module")
def target(tokenizer):
    torch.manual_seed(0)
    return make_llama(tokenizer, num_key_value_heads=6, **DRAFTER_SHAPE).eval()


def test_answers_in_a_batch_are_those_of_each_prompt_alone(tokenizer, target):
    rng = random.Random(0)
    prompts = [chat_ids(tokenizer, FAMILIES[name].example(rng, "train").prompt) for name in ("math", "json")]
    together = answer_batch(target, tokenizer, prompts, 0.0, 12)
    alone = [answer_batch(target, tokenizer, [p], 0.0, 12)[0] for p in prompts]
    assert together == alone
    assert all(e.ids[: e.prompt_length] == p for e, p in zip(together, prompts))


def test_collected_answers_carry_the_targets_distributions(tokenizer, target, tmp_path):
    answers = collect_answers(target, tokenizer, minutes=1e-6, seed=0, batch=2)
    answer = answers[0]
    ids = torch.tensor([answer.ids])
    with torch.inference_mode():
        p = torch.softmax(target(ids).logits[0, answer.prompt_length - 1 : -1], dim=-1)
    top = p.topk(TOP)
    assert torch.equal(top.indices, answer.top_ids)
    torch.testing.assert_close(top.values / top.values.sum(-1, keepdim=True), answer.top_probs, rtol=1e-3, atol=1e-5)

    save_answers(answers, tmp_path / "work" / "answers.pt")
    again = load_answers(tmp_path / "work" / "answers.pt")
    assert [(a.ids, a.prompt_length) for a in again] == [(a.ids, a.prompt_length) for a in answers]
    torch.testing.assert_close(again[0].top_probs, answer.top_probs, rtol=2e-3, atol=1e-4)


def test_a_drafter_learns_from_them(tokenizer, target):
    """A drafter that starts from other weights comes closer to the target's distribution."""
    answers = collect_answers(target, tokenizer, minutes=1e-6, seed=0, batch=2)
    torch.manual_seed(1)
    other = make_llama(tokenizer, num_key_value_heads=6, **DRAFTER_SHAPE).eval()
    family = answers[0].family
    drafter = train_drafter(
        tokenizer, family, answers, Budget(5.0, 5_000), start_from=other, tokens_per_batch=512, lr=1e-3
    )

    def cross_entropy(model):
        total = 0.0
        for answer in (a for a in answers if a.family == family):
            with torch.inference_mode():
                logits = model(torch.tensor([answer.ids])).logits[0, answer.prompt_length - 1 : -1]
            total -= (answer.top_probs * torch.log_softmax(logits, -1).gather(1, answer.top_ids)).sum().item()
        return total

    assert cross_entropy(drafter) < cross_entropy(other) - 1


def test_the_score_asks_heldout_prompts_and_shows_what_was_wrong(tokenizer, target, capsys):
    scores = score_target(target, tokenizer, per_family=1, max_new_tokens=20)
    assert list(scores) == list(FAMILIES)
    assert len(capsys.readouterr().out.splitlines()) == len(scores)
    assert all(len(wrong) in (0, 1) for wrong in scores.values())
