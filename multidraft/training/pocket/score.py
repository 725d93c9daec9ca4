"""Score the pocket target itself: exact checks of its answers to held-out prompts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from multidraft.training.answers import answer_batch
from multidraft.training.pocket.corpus import FAMILIES, Example
from multidraft.training.pocket.data import encode_prompt


@dataclass(frozen=True)
class Score:
    """How a family fared, with its wrong answers to look at."""

    family: str
    right: int
    asked: int
    wrong: list[tuple[Example, str]]

    @property
    def share(self) -> float:
        """Share of right answers."""
        return self.right / self.asked


def score_target(
    target: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    per_family: int,
    seed: int = 20,
    *,
    max_new_tokens: int = 480,
    log: Callable[[str], None] = print,
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
            wrong += [
                (e, text) for e, text in zip(examples, texts, strict=True) if not family.is_correct(e, text.strip())
            ]
        scores.append(Score(name, per_family - len(wrong), per_family, wrong))
        log(f"{family.title:28} {scores[-1].right:4}/{per_family}  {scores[-1].share:6.1%}")
    return scores
