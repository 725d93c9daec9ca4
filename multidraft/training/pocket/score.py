"""Score the pocket target itself: exact checks of its answers to held-out prompts."""

from __future__ import annotations

import random
from typing import NamedTuple

from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from multidraft.training.answers import answer_batch
from multidraft.training.pocket.corpus import FAMILIES, Example
from multidraft.training.pocket.data import encode_prompt


class Score(NamedTuple):
    """How many answers of a family were asked for, and the wrong ones."""

    family: str
    asked: int
    wrong: list[tuple[Example, str]]


def score_target(
    target: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    per_family: int,
    seed: int = 20,
    max_new_tokens: int = 480,
) -> list[Score]:
    """Ask ``per_family`` held-out prompts of each family, greedily, and check every answer exactly."""
    rng = random.Random(seed)
    scores = []
    for name, family in FAMILIES.items():
        wrong = []
        for first in range(0, per_family, 50):
            examples = [family.example(rng, "heldout") for _ in range(min(50, per_family - first))]
            prompts = [encode_prompt(tokenizer, e.prompt) for e in examples]
            encoded = answer_batch(target, tokenizer, prompts, 0.0, max_new_tokens)
            texts = [tokenizer.decode(e.ids[e.prompt_length :], skip_special_tokens=True) for e in encoded]
            wrong += [(e, t) for e, t in zip(examples, texts, strict=True) if not family.is_correct(e, t.strip())]
        scores.append(Score(name, per_family, wrong))
        right = per_family - len(wrong)
        print(f"{family.title:28} {right:4}/{per_family}  {right / per_family:6.1%}", flush=True)
    return scores
