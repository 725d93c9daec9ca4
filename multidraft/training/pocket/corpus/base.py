"""What every task family of the pocket corpus shares: the example type, the held-out rule, the registry.

A family is one module with one class: it writes examples from a seeded generator and checks an answer
exactly. Nothing here knows about tokenizers or models.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from typing import Any, Literal

Split = Literal["train", "heldout"]

HELDOUT_SHARE = 0.08
"""Share of the combination space that training never sees."""


@dataclass(frozen=True)
class Example:
    """One prompt with its reference answer.

    Attributes:
        family: name of the task family, e.g. ``"sql"``.
        prompt: what the user would type.
        completion: the reference answer, without surrounding white space.
        check: facts that the family's ``is_correct`` needs beside the reference (JSON-compatible).
    """

    family: str
    prompt: str
    completion: str
    check: dict[str, Any] = field(default_factory=dict)


class Family:
    """A task family: writes examples and checks answers. By default the reference alone is right, up to white space."""

    name: str
    title: str

    def example(self, rng: random.Random, split: Split) -> Example:
        """Draw one example whose combination belongs to ``split``."""
        raise NotImplementedError

    def is_correct(self, example: Example, answer: str) -> bool:
        """Whether ``answer`` (a model's text, never trusted) solves ``example``; never raises."""
        return answer.split() == example.completion.split()


FAMILIES: dict[str, Family] = {}


def register(family: type[Family]) -> type[Family]:
    """Class decorator: make a family available under its ``name``."""
    FAMILIES[family.name] = family()
    return family


def split_of(*key: object) -> Split:
    """Assign a combination of choices to training or to the held-out set, the same on every machine.

    Hashing the combination, not the example, keeps whole combinations unseen: no rewording of a
    held-out combination can slip into training.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return "heldout" if int.from_bytes(digest, "big") / 2**64 < HELDOUT_SHARE else "train"
