"""What past texts with similar prompts let expect of all drafters together, given what they have shown so far."""

from __future__ import annotations

import numpy as np

from drafters.traffic import STRETCH, Prior

# What each of these numbers changes: python -m tests.perf.sensitivity; docs/policies.md has its table.
ALONE = 0.3
"""How much it counts that the text may be like none of the past ones, so that each drafter tells only of itself: as
much as a stretch would whose prompt had this likeness, in its third power."""

EVIDENCE = 3.0
"""How many tokens of evidence each token of a stretch is: a whole draft was judged at each, though of much the same
tokens as those beside it."""


class Likeness:
    """Which stretch of past texts the present place is like: a belief over stretches, and over none of them.

    In each stretch of ``STRETCH`` tokens every drafter had its own acceptance. So a refusal speaks for all stretches
    where that drafter was poor, and for whoever was good there: where it failed because the token is hard, the others
    are expected to fail as well. *None of them* means that nothing is known but what each drafter has shown itself; it
    gains where no stretch explains what is seen.

    With every token written a text moves on to its next stretch with the chance ``1 / STRETCH``, or another task
    begins, and the weights by the prompt hold again: the forward pass of a hidden Markov model (Rabiner 1989, Eq. 20).

    Attributes:
        weights: probabilities of the stretches, and of none of them at the end, ``(M + 1,)``.

    Args:
        prior: what past queries taught about such prompts; with at least one text.
        log_chances: logarithms of the levels of acceptance and of their complements, ``(2, levels)``.
    """

    def __init__(self, prior: Prior, log_chances: np.ndarray):
        acceptance = np.array([stretch for text in prior.texts for stretch in text])
        counts = EVIDENCE * STRETCH * np.stack([acceptance, 1.0 - acceptance], axis=-1) @ log_chances
        likely = np.exp(counts - counts.max(axis=2, keepdims=True))
        levels = likely / likely.sum(axis=2, keepdims=True)
        # By drafter, of each stretch, and at the end by what it has shown itself: (N, M + 1, levels).
        self.levels = np.append(levels, np.zeros_like(levels[:1]), axis=0).swapaxes(0, 1).copy()
        sizes = [len(text) for text in prior.texts]
        weights = np.append(np.repeat(prior.likeness, sizes) ** 3, ALONE)
        self.start = weights / weights.sum()
        self.weights = self.start.copy()
        self.goes_on = np.ones(len(weights))
        self.goes_on[np.cumsum(sizes) - 1] = self.goes_on[-1] = 0.0  # the last stretch of each text
        self._passed: dict[tuple[int, float], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        """Of each stretch the share of its weight that stays and the share that moves on, and what begins anew."""

    def pass_on(self, tokens: int, kept: float) -> None:
        """Let ``tokens`` pass, in which the task has stayed the same with the chance ``kept``."""
        if (tokens, kept) not in self._passed:
            moved = kept * (1.0 - (1.0 - 1.0 / STRETCH) ** tokens) * self.goes_on
            self._passed[tokens, kept] = kept - moved, moved, (1.0 - kept) * self.start
        kept_here, moved, fresh = self._passed[tokens, kept]
        moving = self.weights * moved
        self.weights *= kept_here
        self.weights[1:] += moving[:-1]
        self.weights += fresh

    def saw(self, arm: int, chances: np.ndarray, otherwise: float) -> None:
        """Learn from a draft of one drafter.

        Args:
            chances: of what was seen of it, at each level of its acceptance, ``(levels,)``.
            otherwise: the chance by what it has shown itself.
        """
        found = self.levels[arm] @ chances
        found[-1] = otherwise
        self.weights *= found
        self.weights /= self.weights.sum()

    def saw_all(self, chances: np.ndarray, otherwise: np.ndarray) -> None:
        """Learn from an evaluation: likewise of all drafters, ``(N, levels)`` and ``(N,)``, up to a factor for each."""
        found = np.vecdot(self.levels, chances[:, None])
        found[:, -1] = otherwise
        logs = np.log(found).sum(axis=0)
        self.weights *= np.exp(logs - logs.max())
        self.weights /= self.weights.sum()

    def belief(self, alone: np.ndarray) -> np.ndarray:
        """What to believe of each drafter's acceptance ``(N, levels)``; ``alone`` is that by what it has shown
        itself."""
        self.levels[:, -1] = alone
        belief: np.ndarray = self.weights @ self.levels
        return belief
