"""What a round takes by drafter, its acceptance and draft length: the measured costs as ``rate-hedge`` uses them."""

from __future__ import annotations

import numpy as np

from drafters.costs import Costs, CostSource

LEVELS = 13
"""Acceptances that are told apart, evenly spaced in their log odds from 0.018 to 0.982: a matter of resolution only."""
GUESS_TOKENS = 4.0
"""How many tokens' worth of evidence a guess about a drafter counts: the start's of its acceptance, which is of such
prompts and not of this one, and that it drafts at all."""


class Levels:
    """Drafts of up to ``longest`` tokens, each accepted with one of ``LEVELS`` chances.

    Attributes:
        log_chances: logarithms of the chances and of their complements, ``(2, levels)``.
        accepted: by depth the chance that a draft is accepted so far, ``(K + 1, levels)``.
        chances: that of drafts with so many accepted tokens, without a refused one and with one, both ``(K + 1,
            levels)``.
        yields: tokens of a round by draft length, ``(levels, K)``.
        failing: the chance that as many tokens of a length are left when no more will be accepted, ``(K, levels x K)``.
    """

    def __init__(self, longest: int):
        odds = np.exp(np.linspace(-4.0, 4.0, LEVELS))
        levels = odds / (1.0 + odds)
        refused = 1.0 - levels
        self.longest = longest
        self.log_chances = np.log([levels, refused])
        self.accepted = levels ** np.arange(longest + 1)[:, None]
        self.chances = self.accepted, self.accepted * refused
        self.yields = 1.0 + self.accepted[1:].T.cumsum(axis=1)
        left = np.arange(longest)
        failing = np.tril(refused[:, None, None] * levels[:, None, None] ** (left[:, None] - left))
        self.failing = failing.reshape(-1, longest).T


class PairCosts:
    """Seconds of rounds by pair of drafter and draft length, were its acceptance known.

    Attributes:
        alone: whether one text is decoded.
        plain: of a round without a draft.
        catch_up: per token that a drafter has to read before it can draft, ``(N,)``.
        evaluation: of an evaluation, and more per token that a drafter reads for it on average.
        known: tokens of a round of each length, and its seconds before what has to be read, ``(N, levels, 2 K)``.
        pace: seconds per token at the best length, ``(N, levels)``.
        fastest: the least of them.
        silent: drafts that were asked for, and those without a token, fading; ``(2, N)``.
    """

    def __init__(self, drafters: int, levels: Levels):
        self.levels, self.longest = levels, levels.longest
        self.silent = np.zeros((2, drafters))
        self.known = np.empty((drafters, LEVELS, 2 * self.longest))
        self.known[:, :, : self.longest] = levels.yields

    def read(self, source: CostSource | None) -> None:
        """Take over the present costs; where nothing is measured yet a drafted token costs a tenth of a target step."""
        drafters = len(self.known)
        costs = source.costs(self.longest) if source else None
        self.alone = costs is None or costs.texts == 1
        if costs is None or not costs.verify[0] > 0:
            costs = Costs.uniform(drafters, self.longest, step=0.1, verify=1.0)
        self.catch_up, self.plain = costs.catch_up, float(costs.verify[0])
        self.evaluation = (costs.evaluate, costs.evaluate_token)
        # A round takes so long, and so much more for each drafted token, by the drafter as by the target.
        each = float(costs.verify[-1] - costs.verify[1]) / max(len(costs.verify) - 2, 1)
        width = 1.0 if costs.width is None else costs.width
        fixed = float(costs.verify[1]) - each + (0.0 if costs.draft_start is None else costs.draft_start)
        go_on = np.ones(drafters) if costs.overrun is None else costs.overrun
        vain = (go_on[:, None] ** np.arange(1, self.longest + 1)).cumsum(axis=1)
        drafted = self.levels.yields - 1.0 + (vain @ self.levels.failing).reshape(drafters, LEVELS, self.longest)
        per_token = (costs.draft_step + width * each)[:, None, None]
        self._speaking = np.reshape(fixed, (-1, 1, 1)) + per_token * np.maximum(drafted, 1.0)
        self._price()

    def drafted(self, arm: int, tokens: int) -> None:
        """A drafter was asked, and drafted so many tokens: with nothing to say a round is one without a draft."""
        self.silent[0, arm] += 1.0
        if not tokens:
            self.silent[1, arm] += 1.0
            self._price()

    def _price(self) -> None:
        silent = self.silent[1] / (self.silent[0] + GUESS_TOKENS)
        seconds = self._speaking + silent[:, None, None] * (self.plain - self._speaking)
        self.known[:, :, self.longest :] = seconds
        self.pace = (seconds / self.levels.yields).min(axis=2)
        self.fastest = float(self.pace.min())
