"""A router: reads the prompt and says which drafter suits it, before a single token is written.

The static baseline of the papers: linear classifiers on the prompt's words and word pairs, hashed to a fixed number
of features, so that all there is to store is one matrix. Each drafter has its own, since a prompt may hold two tasks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

import mmh3
import numpy as np
from safetensors.numpy import load_file, save_file

from drafters.errors import PoolError, TrainingError

FEATURES = 1 << 13
WEIGHTS, LABELS = "router.safetensors", "router.json"

SURE = 0.9
"""Probability from which a prompt counts as one of a drafter's task. Below lie 2 of 1,050 held-out prompts of the
pocket pool, and 355 of the 400 prompts of Spec-Bench that are not to be translated from German as the pool learned."""


_WORDS = re.compile(r"\b\w\w+\b")


def features(prompt: str) -> tuple[np.ndarray, np.ndarray]:
    """Words of two letters or more, and pairs of them, counted by their hashes: which of ``FEATURES`` are not zero, and
    their values, float32 of length 1. That is a row of scikit-learn's ``HashingVectorizer`` (``ngram_range=(1, 2)``,
    ``alternate_sign=False``), without its import, for which the first query of a process would wait."""
    words = _WORDS.findall(prompt.lower())
    keys = np.array([mmh3.hash(key) for key in (*words, *map(" ".join, pairwise(words)))], dtype=np.int64)
    places, counts = np.unique(np.abs(keys) % FEATURES, return_counts=True)
    return places, (counts / max(float(np.linalg.norm(counts)), 1.0)).astype(np.float32)


class Router:
    """Probabilities of ``drafters``, given a prompt: weights float32 ``(drafters, FEATURES)``, bias ``(drafters,)``."""

    def __init__(self, drafters: Sequence[str], weights: np.ndarray, bias: np.ndarray):
        if weights.shape != (len(drafters), FEATURES) or bias.shape != (len(drafters),):
            raise ValueError(f"a router of {len(drafters)} drafters cannot have weights of shape {weights.shape}")
        self.drafters, self.weights, self.bias = tuple(drafters), weights, bias

    def probabilities(self, prompt: str) -> dict[str, float]:
        """How likely each drafter suits ``prompt`` or a part of it, each in [0, 1]."""
        places, values = features(prompt)
        scores = self.weights[:, places] @ values + self.bias
        return dict(zip(self.drafters, (0.5 + 0.5 * np.tanh(0.5 * scores)).tolist(), strict=True))

    def knows(self, prompt: str) -> bool:
        """Whether ``prompt`` is, for all that can be told, of a task that it was trained on."""
        return max(self.probabilities(prompt).values()) >= SURE

    def suited(self, prompt: str, drafters: Sequence[str]) -> list[float]:
        """How well each of ``drafters`` suits ``prompt``, in [0, 1].

        Those that it was not trained on get what suits one drafter as well as the next: 1 / their number.
        """
        known = self.probabilities(prompt)
        return [known.get(name, 1.0 / len(known)) for name in drafters]

    @classmethod
    def train(cls, prompts: Sequence[str], suited: Sequence[Collection[str]]) -> Router:
        """Fit to ``prompts`` and the drafters that suit each, by a regularised logistic regression per drafter.

        Raises:
            TrainingError: no prompts, or a drafter that suits all of them.
        """
        from scipy.sparse import csr_array
        from sklearn.linear_model import LogisticRegression  # takes a second to import, and only training needs it

        names = sorted(set().union(*suited))
        if not names or any(all(name in s for s in suited) for name in names):
            raise TrainingError("a router learns from prompts that suit a drafter and prompts that do not; give both")
        places, values = zip(*map(features, prompts), strict=True)
        ends = np.cumsum([0, *map(len, places)])
        content = np.concatenate(values, dtype=np.float64), np.concatenate(places), ends
        rows = csr_array(content, shape=(len(prompts), FEATURES))
        models = [LogisticRegression(C=30.0, max_iter=300).fit(rows, [name in s for s in suited]) for name in names]
        weights = np.concatenate([model.coef_ for model in models]).astype(np.float32)
        return cls(names, weights, np.concatenate([model.intercept_ for model in models]).astype(np.float32))

    def save(self, folder: Path) -> None:
        """Write the router to ``folder``; half precision is plenty for scores."""
        folder.mkdir(parents=True, exist_ok=True)
        # The library writes the buffer as it lies, so rows have to lie one after the other.
        weights = np.ascontiguousarray(self.weights, dtype=np.float16)
        save_file({"weights": weights, "bias": self.bias}, folder / WEIGHTS)
        (folder / LABELS).write_text(json.dumps({"drafters": list(self.drafters)}) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Router:
        """Read what :meth:`save` wrote; missing or damaged files are a :class:`PoolError`."""
        try:
            tensors = load_file(folder / WEIGHTS)
            names = json.loads((folder / LABELS).read_text())["drafters"]
            return cls(names, tensors["weights"].astype(np.float32), tensors["bias"])
        except Exception as error:  # the library raises several kinds for damaged files
            raise PoolError(f"cannot load the router from {folder}: {error}. Train it anew, or leave it out") from error

    @classmethod
    def of_card(cls, named: Path | None, card: Path) -> Router | None:
        """The router in the folder that the card in file ``card`` names; ``None`` if it names none."""
        return cls.load((card.parent / named).resolve()) if named else None
