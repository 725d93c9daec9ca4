"""Prompts that ask for two tasks in a row, so that the best drafter changes in the middle of the answer."""

from __future__ import annotations

import random
from dataclasses import asdict

from multidraft.training.pocket.corpus.base import FAMILIES, Example, Family, Split, register

PHRASINGS = (
    "Please do two things, one after the other.\n\nFirst: {first}\n\nSecond: {second}",
    "Two tasks for you.\n\nTask 1. {first}\n\nTask 2. {second}",
    "Answer both.\n\n(1) {first}\n\n(2) {second}",
    "Start with this: {first}\n\nWhen that is done: {second}",
    "I need two answers.\n\nA) {first}\n\nB) {second}",
    "{first}\n\nAnd after that: {second}",
)


@register
class TwoTasks(Family):
    """Two examples of different families in one prompt; the answers follow each other after a blank line."""

    name = "mixed"
    title = "Two tasks in a row"

    def example(self, rng: random.Random, split: Split) -> Example:
        """Join two held-out (or two training) examples of different families."""
        names = rng.sample([name for name in FAMILIES if name != self.name], 2)
        parts = [FAMILIES[name].example(rng, split) for name in names]
        prompt = rng.choice(PHRASINGS).format(first=parts[0].prompt, second=parts[1].prompt)
        check = {"parts": [asdict(part) for part in parts]}
        return Example(self.name, prompt, "\n\n".join(part.completion for part in parts), check)

    def is_correct(self, example: Example, answer: str) -> bool:
        """Whether some blank line splits ``answer`` into a right first and a right second part."""
        first, second = (Example(**part) for part in example.check["parts"])
        lines = answer.strip().split("\n\n")
        return any(
            FAMILIES[first.family].is_correct(first, "\n\n".join(lines[:cut]))
            and FAMILIES[second.family].is_correct(second, "\n\n".join(lines[cut:]))
            for cut in range(1, len(lines))
        )


def tasks_of(example: Example) -> set[str]:
    """The families of an example: one, or the two of a prompt with two tasks."""
    parts = example.check["parts"] if example.family == TwoTasks.name else [{"family": example.family}]
    return {part["family"] for part in parts}
