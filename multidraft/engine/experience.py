"""What a query leaves to later ones: how well each drafter did, and what drafters that learn are shown of its text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from drafters.base import TOP, Lesson
from drafters.sampling import SamplingParams
from drafters.traffic import Traffic
from multidraft.policies import NO_DRAFTER, Context, Feedback, Policy
from multidraft.policies.base import acceptance_by_route
from storage.records import Generation

if TYPE_CHECKING:
    from drafters.pool import Pool


def context_of(pool: Pool, policy: Policy, generation: Generation, params: SamplingParams) -> Context:
    """What is known of a query when it begins; what past ones taught, if the policy asks for it, is noted in the
    record."""
    if pool.traffic is not None and getattr(policy.settings, "start", "cold") == "traffic":
        generation.prior = pool.traffic.prior(generation.prompt)
    return Context(
        generation.prompt,
        params.draft_length,
        pool.costs,
        pool.route if pool.router else None,
        pool.previous.get(generation.policy),
        prompt_tokens=generation.prompt_tokens,
        prior=generation.prior,
    )


class Beginning(NamedTuple):
    """What a query would begin with.

    Attributes:
        context: what is known of it: ``prior`` is what past queries taught, if they taught anything.
        arm: who would draft first, ``NO_DRAFTER`` if nobody.
        length: tokens that it would be asked for.
    """

    context: Context
    arm: int
    length: int


def beginning(policy: Policy, context: Context) -> Beginning:
    """The first choice of a policy; nothing is drafted."""
    policy.begin(context)
    arm = policy.select()
    return Beginning(context, arm, policy.draft_length(context.draft_length) if arm != NO_DRAFTER else 0)


def new_traffic(pool: Pool) -> Traffic:
    """The beginning of what a pool may learn from its queries: nothing but what its router guesses, if it has one."""
    router, names = pool.router, pool.card.routed_names()  # not the pool itself, which is freed once nobody uses it
    called = [names.get(name, name) for name in pool.drafter_names]
    route = (lambda prompt: router.suited(prompt, called)) if router else None
    return traffic_with(len(pool.drafters), pool.draft_length, route)


def traffic_with(drafters: int, length: int, route: Callable[[str], Sequence[float] | None] | None) -> Traffic:
    """The beginning of what may be learnt about drafters, with a router as a voice in it, if there is one."""

    def guess(prompt: str) -> Sequence[float] | None:
        suited = route(prompt) if route else None
        return None if suited is None else acceptance_by_route(suited)

    return Traffic(drafters, length, guess)


class Experience:
    """Means in [0, 1] of each drafter over one query.

    For policies that learn from rewards it is the mean reward of the rounds played. For those that evaluate all
    drafters it is the acceptance by token: of evaluated positions, and of the tokens of drafts up to the first refused.

    Args:
        drafters: the pool's.
        before: the means of the query before, which stand for drafters that this one tells nothing about.
        by_token: whether the policy evaluates.
    """

    def __init__(self, drafters: Sequence[object], before: Sequence[float] | None = None, *, by_token: bool = False):
        self.before, self.by_token = before, by_token
        self.sums, self.counts = np.zeros(len(drafters)), np.zeros(len(drafters))

    def add(self, feedback: Feedback, reward: float | None) -> None:
        """Count a round, and the evaluation that followed it."""
        if feedback.arm >= 0 and feedback.drafted:
            if self.by_token:
                self.sums[feedback.arm] += feedback.accepted
                self.counts[feedback.arm] += min(feedback.accepted + 1, feedback.drafted)
            elif reward is not None:
                self.sums[feedback.arm] += reward
                self.counts[feedback.arm] += 1
        if feedback.gamma is not None:
            self.sums += feedback.gamma[:, 0].sum(axis=0)
            self.counts += len(feedback.gamma)

    def means(self) -> list[float] | None:
        """The means; ``None`` while there is nothing to tell."""
        known = self.counts > 0
        if not known.any():
            return None if self.before is None else list(self.before)
        means = self.sums / np.maximum(self.counts, 1)
        # A drafter nobody asked is taken for an average one.
        unknown = float(means[known].mean()) if self.before is None else np.asarray(self.before)
        return [float(mean) for mean in np.where(known, means, unknown)]


class Notes:
    """Notes the target's likeliest tokens at each token of an answer, as its forwards pass by.

    Args:
        pool: whose drafters are to learn, if any; where none of them asks for probabilities, none are noted.
    """

    def __init__(self, pool: Pool | None):
        self._wanted = pool is not None and any(drafter.learns for drafter in pool.drafters)
        self._rows: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(self, logits: torch.Tensor | None, rows: Sequence[int]) -> None:
        """Note the rows of ``logits (n, V)`` from which a round's tokens were chosen; without logits, nothing from then
        on. Waits for no device."""
        self._wanted &= logits is not None
        if not self._wanted or logits is None:
            return
        scores = logits[: len(rows)] if list(rows) == list(range(len(rows))) else logits[list(rows)]
        found = scores.topk(min(TOP, scores.shape[-1]), dim=-1)
        self._rows.append((found.indices, found.values.float() - scores.float().logsumexp(dim=-1, keepdim=True)))

    def lesson(self, context: Sequence[int], generation: Generation) -> Lesson:
        """What there is to learn from a generation that has ended with this context."""
        prompt, answer = list(context[: generation.prompt_tokens]), list(generation.token_ids)
        if not self._wanted or not self._rows:
            return Lesson(prompt, answer)
        ids, logs = (torch.cat(parts)[: len(answer)].cpu() for parts in zip(*self._rows, strict=True))
        return Lesson(prompt, answer, ids, logs.exp())
