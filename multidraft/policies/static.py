"""Policies that do not learn: the yardsticks for those that do."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from multidraft.policies.base import ALL_DRAFTERS, NO_DRAFTER, Feedback, Policy, register
from multidraft.policies.settings import DrafterName, PolicySettings
from storage.records import PLAIN


@register
class Autoregressive(Policy):
    """Autoregressive decoding, one token per target forward; needs no drafter."""

    name = PLAIN
    title = "No drafter"
    explanation = (
        "The target model writes alone, one token at a time, as language models usually do. Nothing is guessed "
        "ahead, so nothing is gained: every speedup is measured against this policy."
    )
    source = "Autoregressive decoding (BanditSpec Alg. 1)"

    def select(self) -> int:
        return NO_DRAFTER

    def candidates(self) -> Sequence[int]:
        return ()


class OneDrafter(Policy):
    """The same drafter in every round: ``arm``, which subclasses set in :meth:`reset`."""

    arm: int

    def select(self) -> int:
        return self.arm

    def candidates(self) -> Sequence[int]:
        return (self.arm,)


@register
class Fixed(OneDrafter):
    """The drafter that a setting names."""

    name = "fixed"
    title = "One drafter"
    explanation = (
        "You name one drafter, and it guesses ahead in every round. It is as good as your choice: fast on the "
        "texts that drafter knows, slow on others. The best fixed drafter is what the learning policies try to match."
    )
    source = "Speculative decoding with a single drafter (BanditSpec Alg. 6)"

    class Settings(PolicySettings):
        drafter: DrafterName

    def reset(self) -> None:
        self.arm = self.arm_of(self.settings.drafter)


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

    def select(self) -> int:
        return self.t % self.arm_count

    def update(self, feedback: Feedback) -> None:
        self.t += 1


@register
class DraftAll(Policy):
    """Every drafter drafts in every round; the target verifies the union of the drafts as one tree.

    The drafts are greedy at any temperature: a token that several drafters agree on is one node then. Where the tree
    has no room for all nodes, shallow ones and those of more drafters go first.
    """

    name = "draft-all"
    title = "All drafters at once"
    explanation = (
        "Every drafter guesses ahead in every round, and the target model checks all the guesses together. No round is "
        "wasted on the wrong drafter, but each pays for all of them: the fewest rounds, and seldom the fastest text."
    )
    source = "MetaSD §4 (DraftAll)"

    class Settings(PolicySettings):
        nodes: int = Field(128, ge=1, le=1024, description="most nodes of the tree")

    def reset(self) -> None:
        self.tree_nodes = self.settings.nodes

    def select(self) -> int:
        return ALL_DRAFTERS


@register
class Router(OneDrafter):
    """The drafter that the pool's router finds most suited to the prompt, for the whole query."""

    name = "router"
    title = "Router"
    explanation = (
        "A classifier reads the prompt and picks the drafter made for that kind of task, before anything is written. "
        "It costs next to nothing and is right at once where prompts look like those it was trained on; it never "
        "changes its mind, even when the answer turns to another subject."
    )
    source = "Static routing, the baseline of MetaSD §4 and HedgeSpec §4"
    needs_route = True

    def reset(self) -> None:
        suited = self.context.suited()
        self.arm = max(range(self.arm_count), key=suited.__getitem__) if suited else 0


@register
class Oracle(OneDrafter):
    """The single drafter that needs the fewest rounds for the text, known by exact replay (ties: the first).

    The replay hands it the rounds that each drafter alone needs (:attr:`Context.hindsight`).
    """

    name = "oracle"
    title = "Oracle"
    explanation = (
        "The best single drafter for exactly this text, chosen after the fact. It cannot be played live, since nobody "
        "knows the text beforehand; in replays it is the mark that policies which stay with one drafter cannot pass."
    )
    source = "MetaSD Def. 1 and BanditSpec Eq. 1: the comparator of the regret"
    live = False

    def reset(self) -> None:
        needed = self.context.hindsight or [0]
        self.arm = needed.index(min(needed))
