"""The policy interface, what a policy is handed, and the registry."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_origin

import numpy as np

from drafters.costs import CostSource
from drafters.errors import PolicyError
from drafters.traffic import Prior
from multidraft.policies.settings import PolicySettings

NO_DRAFTER = -1
"""The arm of plain autoregressive decoding."""

SUITED, UNSUITED = 0.8, 0.35
"""Acceptance to expect of a drafter that the router is sure of, and of one it is sure is not the one."""


def acceptance_by_route(suited: Sequence[float]) -> list[float]:
    """Acceptance to expect of each drafter, by how well a router finds that it suits the prompt."""
    return [UNSUITED + (SUITED - UNSUITED) * value for value in suited]


ALL_DRAFTERS = -2
"""The arm of a round in which every drafter drafts and the target verifies the union of the drafts as a tree."""


@dataclass(frozen=True)
class Context:
    """What is known of a query when it begins.

    Attributes:
        prompt: the user's text.
        draft_length: longest draft K that may be asked for.
        costs: where to read what the parts of a round cost; ``None`` if nobody measures.
        route: how well each drafter suits a prompt, in [0, 1], by the pool's router; ``None`` without one.
        previous: mean reward of each drafter in the previous query, or its acceptance for policies that evaluate;
            ``None`` if there is none.
        hindsight: rounds that each drafter alone would need, in replays; ``None`` live.
        prompt_tokens: length of the whole prompt, which drafters have to read.
        prior: what past queries taught about such prompts; ``None`` where nobody learns from them.
    """

    prompt: str = ""
    draft_length: int = 8
    costs: CostSource | None = None
    route: Callable[[str], Sequence[float] | None] | None = None
    previous: Sequence[float] | None = None
    hindsight: Sequence[int] | None = None
    prompt_tokens: int = 0
    prior: Prior | None = None

    def suited(self) -> Sequence[float] | None:
        """How well each drafter suits this prompt; ``None`` without a router."""
        return self.route(self.prompt) if self.route else None


@dataclass(frozen=True)
class Feedback:
    """What one round showed.

    Attributes:
        arm: the arm played; ``NO_DRAFTER`` for none, also where nothing of its draft could be verified.
        drafted: length of the draft, along its main path where it is a tree.
        accepted: accepted tokens A.
        emitted: emitted tokens, A + 1 unless the output ended inside the accepted path.
        draft_length: draft length K asked for; shorter than usual where the output is about to end.
        block_divergence: BD in [0, 1], MetaSD Eq. 4; ``None`` unless ``Policy.uses_block_divergence``.
        gamma: acceptance probabilities ``(m, K, N)`` float64 in [0, 1], ``None`` when nothing was evaluated: of each
            newly evaluated verified position in order, each depth, and each drafter. At depth ``k`` it is that of the
            token after ``k`` accepted ones, in a draft begun ``k`` positions earlier (HedgeSpec Theorem 3).
            Positions come late and in batches where the policy skips rounds, but none is left out, unless the policy
            asks for the last ones only (``Policy.evaluation_span``).
        seconds: wall-clock seconds of drafting and verification.
    """

    arm: int
    drafted: int
    accepted: int
    emitted: int
    draft_length: int
    block_divergence: float | None = None
    gamma: np.ndarray | None = None
    seconds: float = 0.0

    @property
    def block_efficiency(self) -> float:
        """BE = A / K (MetaSD §2.3)."""
        return self.accepted / self.draft_length if self.draft_length else 0.0


class Policy:
    """Chooses an arm before each round, from past rounds only: an arm picked after a look at its random draft would
    bias the output.

    Subclasses set the class attributes and override :meth:`select`, :meth:`update`, and :meth:`reset` for their state.

    Attributes:
        context: the query under way.
        rng: generator of every random choice, seeded anew for each query.
        t: rounds counted so far in the query.
        last_reward: reward of the round just played, for the record; ``None`` where there is none.

    Args:
        arms: names of the drafters, in the pool's order.
        settings: values of :attr:`Settings`.

    Raises:
        PolicyError: a setting that is unknown, missing or out of bounds.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    explanation: ClassVar[str]
    source: ClassVar[str]
    uses_block_divergence: bool = False
    """Whether :class:`Feedback` must carry BD, which costs the engine two softmaxes per round."""
    uses_gamma: bool = False
    """Whether the policy learns from γ of all drafters (full information)."""
    uses_soft_gamma: bool = False
    """Whether γ of greedy runs is to be ``1 - TV`` at temperature 1 too, instead of hit or miss (HedgeSpec Thm. 1)."""
    uses_costs: bool = False
    """Whether its choices depend on measured time (``context.costs``, ``Feedback.seconds``). Its replays are estimates
    then: live it meets the clock of that moment."""
    needs_route: bool = False
    """Whether the policy cannot do without a router."""
    tree_nodes: int = 128
    """Nodes of the tree at most, where it plays ``ALL_DRAFTERS``."""
    live: bool = True
    """Whether it can be played live, and not only on recorded texts."""

    last_reward: float | None = None

    Settings: ClassVar[type[PolicySettings]] = PolicySettings
    """What specs may set; a policy that takes settings overrides it by a nested class."""

    def __init__(self, arms: Sequence[str], seed: int = 0, **settings: Any):
        self.arms = tuple(arms)
        self.seed = seed
        self.settings: Any = self.Settings.of(settings)
        self.begin()

    def begin(self, context: Context | None = None) -> None:
        """Begin a query: forget the one before, then warm up where the start is warm and something is known."""
        self.context = context or Context()
        self.rng = np.random.default_rng(self.seed)
        self.t = 0
        self.reset()
        start = getattr(self.settings, "start", "cold")
        if start == "traffic" and self.context.prior is not None:
            self.expect(self.context.prior)
        elif start in ("router", "traffic") and (suited := self.context.suited()) is not None:
            self.warm_up(acceptance_by_route(suited))
        elif start == "previous" and self.context.previous is not None:
            self.warm_up(self.context.previous)
        self.last_reward = None

    def reset(self) -> None:
        """Set what is learnt to what a query begins with; :attr:`context`, :attr:`rng` and :attr:`t` are set."""

    def expect(self, prior: Prior) -> None:
        """Begin with what past queries taught of such prompts."""
        self.warm_up(prior.acceptance)

    def warm_up(self, guess: Sequence[float]) -> None:
        """Learn from a guess how good each drafter is, in [0, 1]: as if each had been played for one round so good."""
        for arm, value in enumerate(guess):
            self.update(self.as_if_played(arm, value))

    def as_if_played(self, arm: int, value: float) -> Feedback:
        """Feedback of a full round of ``arm`` whose reward is ``value``, to the nearest whole token."""
        length = self.context.draft_length
        accepted = round(value * length)
        return Feedback(arm, length, accepted, accepted + 1, length, value)

    def select(self) -> int:
        """The arm of the next round, ``NO_DRAFTER`` for none, ``ALL_DRAFTERS`` for all at once."""
        raise NotImplementedError

    def candidates(self) -> Sequence[int]:
        """Arms that are likely to be played for this query: these drafters read the prompt during prefill, others when
        they are first asked."""
        return range(len(self.arms))

    def draft_length(self, limit: int) -> int:
        """Draft length of the next round, at most ``limit``; asked after :meth:`select`."""
        return limit

    def wants_evaluation(self, emitted: int) -> bool:
        """Whether all drafters are to be evaluated after the round that was just played and emitted so many tokens."""
        return False

    @property
    def evaluation_span(self) -> int | None:
        """How many of the last positions an evaluation is for; ``None`` for all since the last one, as papers have it.
        Drafters read all of them anyway, but their predictions at each cost more than that."""
        return None

    def update(self, feedback: Feedback) -> None:
        """Learn from the round just played."""

    def probabilities(self) -> list[float] | None:
        """Probabilities of the arms in the next round; ``None`` where the policy draws from none or keeps none."""
        return None

    def arm_of(self, drafter: str) -> int:
        """The arm of a drafter.

        Raises:
            PolicyError: there is no drafter of that name.
        """
        if drafter not in self.arms:
            raise PolicyError(f"there is no drafter {drafter!r:.60}; choose one of: {', '.join(self.arms)}")
        return self.arms.index(drafter)

    @property
    def arm_count(self) -> int:
        """Number of arms N."""
        return len(self.arms)


P = TypeVar("P", bound=type[Policy])
POLICIES: dict[str, type[Policy]] = {}


def register(policy: P) -> P:
    """Class decorator: make a policy known under its ``name`` in Python, command line and interface.

    Raises:
        PolicyError: it is no policy that can be played by its name, or another class has the name; the same one may be
            registered again, as a notebook does.
    """
    _check(policy)
    known = POLICIES.get(policy.name, policy)
    if (known.__module__, known.__qualname__) != (policy.__module__, policy.__qualname__):
        raise PolicyError(
            f"{policy.__qualname__}: there is a policy {policy.name!r} already, {known.__qualname__} of "
            f"{known.__module__}; give this one a name of its own"
        )
    POLICIES[policy.name] = policy
    return policy


def _check(policy: type[Policy]) -> None:
    """Raise PolicyError unless a class declares and defines all that is shown of a policy and asked of one."""
    who = getattr(policy, "__qualname__", repr(policy))
    if not (inspect.isclass(policy) and issubclass(policy, Policy)):
        raise PolicyError(f"{who} is registered as a policy, but is not derived from Policy")
    for name in ("name", "title", "explanation", "source"):
        if not isinstance(text := getattr(policy, name, None), str) or not text.strip():
            raise PolicyError(f"policy {who} needs the class attribute {name!r}, a text")
    if not re.fullmatch(r"[a-z0-9-]+", policy.name):
        raise PolicyError(
            f"policy {who}: the name {policy.name!r:.60} must consist of lower-case letters, digits and hyphens"
        )
    if not (inspect.isclass(policy.Settings) and issubclass(policy.Settings, PolicySettings)):
        raise PolicyError(f"policy {who}: its Settings must be a class derived from PolicySettings")
    for name, field in policy.Settings.model_fields.items():
        if field.annotation not in (int, float, str) and get_origin(field.annotation) is not Literal:
            raise PolicyError(
                f"policy {who}: the setting {name!r} must be an int, a float, a str or a Literal of texts, so that a "
                "spec can give it"
            )
        if field.default is None:
            raise PolicyError(f"policy {who}: the setting {name!r} needs a default other than None, or none at all")
    if policy.select is Policy.select:
        raise PolicyError(f"policy {who} needs a method select(self), which chooses the arm of the next round")
    for name, method in inspect.getmembers(Policy, inspect.isfunction):
        expected = inspect.signature(method).parameters
        if not name.startswith("_") and not _takes(getattr(policy, name), len(expected)):
            raise PolicyError(f"policy {who}: define {name} as a method {name}({', '.join(expected)})")


def _takes(method: Any, count: int) -> bool:
    """Whether something can be called with so many arguments."""
    try:
        inspect.signature(method).bind(*range(count))
    except (TypeError, ValueError):  # it cannot be called at all, takes more or fewer, or is a builtin
        return False
    return True


def policy_names() -> list[str]:
    """Names of all policies, alphabetically."""
    return sorted(POLICIES)
