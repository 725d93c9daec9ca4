"""Policies that do not learn: the yardsticks for those that do."""

from __future__ import annotations

from collections.abc import Sequence

from multidraft.errors import PolicyError
from multidraft.policies.base import ALL_DRAFTERS, NO_DRAFTER, Feedback, Policy, register


@register
class Autoregressive(Policy):
    """Plain decoding, one token per target forward; needs no drafter."""

    name = "autoregressive"
    title = "No drafter"
    explanation = (
        "The large model writes alone, one token at a time, as language models usually do. Nothing is guessed "
        "ahead, so nothing is gained: every speedup in this house is measured against this policy."
    )
    source = "Autoregressive decoding (BanditSpec Alg. 1)"
    takes_start = False

    def select(self) -> int:
        return NO_DRAFTER

    def candidates(self) -> Sequence[int]:
        return ()


@register
class Fixed(Policy):
    """The same drafter in every round.

    Args:
        drafter: its name in the pool.

    Raises:
        PolicyError: the pool has no drafter of that name.
    """

    name = "fixed"
    title = "One drafter"
    explanation = (
        "You name one drafter, and it guesses ahead in every round. It is as good as your choice: fast on the "
        "texts that drafter knows, slow on others. The best fixed drafter is what the learning policies try to match."
    )
    source = "Speculative decoding with a single drafter (BanditSpec Alg. 6)"
    takes_start = False

    def __init__(self, arms: Sequence[str], seed: int = 0, *, drafter: str):
        if drafter not in arms:
            raise PolicyError(f"the pool has no drafter {drafter!r}; choose one of: {', '.join(arms)}")
        self.arm = list(arms).index(drafter)
        super().__init__(arms, seed)

    def select(self) -> int:
        return self.arm

    def candidates(self) -> Sequence[int]:
        return (self.arm,)


@register
class Random(Policy):
    """An arm drawn uniformly in every round."""

    name = "random"
    title = "Random drafter"
    explanation = (
        "Every round, a die decides which drafter guesses ahead. Nothing is learnt, so its speed is the average "
        "over the drafters: a policy that learns has to beat it."
    )
    source = "MetaSD Table 3 (Rand)"
    takes_start = False

    def select(self) -> int:
        return int(self.rng.integers(self.arm_count))

    def probabilities(self) -> list[float]:
        return [1.0 / self.arm_count] * self.arm_count


@register
class RoundRobin(Policy):
    """The arms in the pool's order, over and over."""

    name = "round-robin"
    title = "Taking turns"
    explanation = (
        "The drafters take turns in a fixed order. Nothing is learnt; it shows every drafter at work on the same "
        "text, and costs as much as choosing at random."
    )
    source = "Baseline without a paper"
    takes_start = False

    def select(self) -> int:
        return self.t % self.arm_count

    def update(self, feedback: Feedback) -> None:
        self.t += 1


@register
class DraftAll(Policy):
    """Every drafter drafts in every round; the target verifies the union of the drafts as one tree.

    The drafts are greedy at any temperature: a token that several drafters agree on is one node then.

    Args:
        nodes: of the tree at most, 1 or more; shallow ones and those of more drafters go first.
    """

    name = "draft-all"
    title = "All drafters at once"
    explanation = (
        "Every drafter guesses ahead in every round, and the large model checks all the guesses together. No round is "
        "wasted on the wrong drafter, but each pays for all of them: the fewest rounds, and seldom the fastest text."
    )
    source = "MetaSD §4 (DraftAll)"
    takes_start = False

    def __init__(self, arms: Sequence[str], seed: int = 0, nodes: int = 128):
        if nodes < 1:
            raise PolicyError(f"nodes must be a positive number, got {nodes}")
        self.tree_nodes = nodes
        super().__init__(arms, seed)

    def select(self) -> int:
        return ALL_DRAFTERS
