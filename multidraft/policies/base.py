"""The policy interface, and the registry behind policy specs such as ``ucb:beta=0.1,reward=be``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from multidraft.costs import CostSource
from multidraft.errors import PolicyError
from multidraft.policies.faults import raised_at_its_making

NO_DRAFTER = -1
"""The arm of plain autoregressive decoding."""

STARTS = ("cold", "router", "previous")
"""What a query begins with: nothing, the router's guess, or how the drafters did in the query before."""

SUITED, UNSUITED = 0.8, 0.35
"""Acceptance to expect of a drafter that the router is sure of, and of one it is sure is not the one."""

ALL_DRAFTERS = -2
"""The arm of a round in which every drafter drafts and the target verifies the union of the drafts as a tree."""


@dataclass(frozen=True)
class Feedback:
    """What one round showed.

    Attributes:
        arm: the arm played (``NO_DRAFTER`` for none).
        drafted: length of the draft, along its main path where it is a tree.
        accepted: accepted tokens A.
        emitted: emitted tokens, A + 1 unless the output ended inside the accepted path.
        draft_length: draft length K asked for; shorter than usual where the output is about to end.
        block_divergence: BD in [0, 1], MetaSD Eq. 4; ``None`` unless ``Policy.uses_block_divergence``.
        gamma: acceptance probabilities ``(m, N)`` float64 in [0, 1]: one row for each newly evaluated
            verified position in order, one column per drafter; ``None`` when nothing was evaluated.
            Rows come late and in batches where the policy skips rounds, but none is left out, unless the policy
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
        """BE = A / K (MetaSD Eq. 3)."""
        return self.accepted / self.draft_length if self.draft_length else 0.0


class Policy:
    """Chooses an arm before each round, from past rounds only.

    Choosing before anything is drafted is what keeps sampling lossless: an arm picked after a look at
    its random draft would bias the output.

    Subclasses set the class attributes, override :meth:`select` and :meth:`update`, and begin their
    ``reset`` with ``super().reset(prompt)``.

    Args:
        arms: names of the drafters, in the pool's order.
        seed: seeds every random choice.
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
    """Whether γ of greedy runs is to be ``1 - TV`` at temperature 1 too, instead of hit or miss (SPEC 3)."""
    uses_costs: bool = False
    """Whether its choices depend on how long things take, by ``costs`` or ``Feedback.seconds``. What a replay says of
    its rounds is then an estimate: live it meets the clock of that moment."""
    costs: CostSource | None = None
    """What the parts of a round cost, set before :meth:`reset` by who runs the policy; ``None`` if nobody measures."""

    route: Callable[[str], Sequence[float] | None] | None = None
    """How well each drafter suits a prompt, in [0, 1], by the pool's router; set before :meth:`reset` likewise."""
    previous: Sequence[float] | None = None
    """How each drafter did in the query before, in [0, 1]: mean reward, or acceptance for policies that evaluate;
    set before :meth:`begin` likewise."""
    needs_route: bool = False
    """Whether the policy cannot do without a router."""
    start: str = "cold"
    """One of ``STARTS``; a setting of every policy that takes one."""
    takes_start: ClassVar[bool] = True
    """Whether it learns about drafters, so that it can begin with a guess."""
    tree_nodes: int = 128
    """Nodes of the tree at most, where it plays ``ALL_DRAFTERS``."""
    live: bool = True
    """Whether it can be played live, and not only on recorded texts."""
    hindsight: Sequence[int] | None = None
    """Rounds that each drafter alone would need, set by a replay; ``None`` live."""
    longest: int = 8
    """Draft length K that the user allows at most; set before :meth:`reset` likewise."""

    def __init__(self, arms: Sequence[str], seed: int = 0):
        self.arms = tuple(arms)
        self.seed = seed
        self.reset()

    def reset(self, prompt: str = "") -> None:
        """Forget everything: a new query begins."""
        self.rng = np.random.default_rng(self.seed)
        self.t = 0
        self.last_reward: float | None = None

    def begin(self, prompt: str = "") -> None:
        """Begin a query: :meth:`reset`, then :meth:`warm_up` where the start is warm and something is known."""
        self.reset(prompt)
        guess: Sequence[float] | None = None
        if self.start == "router" and self.route and (suited := self.route(prompt)) is not None:
            guess = [UNSUITED + (SUITED - UNSUITED) * value for value in suited]
        elif self.start == "previous":
            guess = self.previous
        if guess is not None:
            self.warm_up(guess)
            self.last_reward = None

    def warm_up(self, guess: Sequence[float]) -> None:
        """Learn from a guess how good each drafter is, in [0, 1]: as if each had been played for one round so good."""
        for arm, value in enumerate(guess):
            self.update(self.as_if_played(arm, value))

    def as_if_played(self, arm: int, value: float) -> Feedback:
        """Feedback of a full round of ``arm`` whose reward is ``value``, to the nearest whole token."""
        accepted = round(value * self.longest)
        return Feedback(arm, self.longest, accepted, accepted + 1, self.longest, value)

    def select(self) -> int:
        """The arm of the next round, ``NO_DRAFTER`` for none."""
        raise NotImplementedError

    def candidates(self) -> Sequence[int]:
        """Arms that may be played for this query; these drafters read the prompt during prefill."""
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

    @property
    def arm_count(self) -> int:
        """Number of arms N."""
        return len(self.arms)


P = TypeVar("P", bound=type[Policy])
POLICIES: dict[str, type[Policy]] = {}


def register(policy: P) -> P:
    """Class decorator: make a policy known under its ``name`` in Python, command line and interface."""
    POLICIES[policy.name] = policy
    return policy


def policy_names() -> list[str]:
    """Names of all policies, alphabetically."""
    return sorted(POLICIES)


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Split ``name:key=value,…`` into name and settings; a lone value (``fixed:math``) is the key ``""``."""
    name, _, rest = spec.strip().partition(":")
    settings: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in rest.split(","))):
        key, equals, value = part.partition("=")
        settings[key.strip() if equals else ""] = value.strip() if equals else key.strip()
    return name.strip().lower(), settings


def make_policy(spec: str, arms: int | Sequence[str], seed: int = 0) -> Policy:
    """Build a policy from its spec.

    Args:
        spec: a name with optional settings, e.g. ``"ucb"``, ``"ucb:beta=0.1,reward=be"``, ``"fixed:math"``.
        arms: the drafters' names, or just how many there are.
        seed: seed of the policy's own generator.

    Raises:
        PolicyError: unknown name, unknown setting or a value out of range; the message lists what is valid.
    """
    kind, values = read_spec(spec)
    name = kind.name
    names = [f"arm{i}" for i in range(arms)] if isinstance(arms, int) else list(arms)
    if not names and name != "autoregressive":
        raise PolicyError(f"policy {name!r} needs at least one drafter in the pool")
    if missing := _missing(kind, values):
        raise PolicyError(f"policy {name!r} needs {missing[0]}, e.g. {name}:{names[0]}; drafters: {', '.join(names)}")
    start = values.pop("start", kind.start)
    try:
        if start not in STARTS:
            raise PolicyError(f"start must be one of: {', '.join(STARTS)}; got {start!r}")
        policy = kind(names, seed, **values)
    except PolicyError as error:
        raise PolicyError(f"policy {spec!r}: {error}") from None
    except Exception as error:
        raise raised_at_its_making(spec, error) from error
    policy.start = start
    return policy


def check_specs(specs: Sequence[str], *, live: bool = True) -> None:
    """Refuse what no pool can play, before one is loaded: the names of its drafters alone are not checked.

    Args:
        live: whether the policies are to be played, and not replayed.

    Raises:
        PolicyError: there is no spec, or a bad one; see :func:`make_policy`.
    """
    if not specs:
        raise PolicyError("no policy is chosen; choose at least one")
    for spec in specs:
        kind, values = read_spec(spec)
        if live:
            check_live(kind)
        if not _missing(kind, values):
            make_policy(spec, stand_ins(values))


def stand_ins(values: dict[str, Any]) -> list[str]:
    """Arms for a policy that is made only to see what it takes: whatever its settings might name, and another."""
    return [*(value for value in values.values() if isinstance(value, str) and value), "another"]


def check_live(policy: Policy | type[Policy]) -> None:
    """Raise :class:`PolicyError` where a policy knows what only a recorded text tells."""
    if not policy.live:
        raise PolicyError(f"policy {policy.name!r} cannot be played live; it is for replays")


def _missing(kind: type[Policy], values: dict[str, Any]) -> list[str]:
    """Settings without a default that are not given."""
    known = settings_of(kind).items()
    return [key for key, parameter in known if parameter.default is parameter.empty and key not in values]


def settings_of(kind: type[Policy]) -> dict[str, inspect.Parameter]:
    """What a spec of this policy may set, with defaults (``empty`` where it must be given)."""
    parameters = inspect.signature(kind.__init__).parameters
    known = {key: p for key, p in parameters.items() if key not in ("self", "arms", "seed")}
    if kind.takes_start:
        known["start"] = inspect.Parameter("start", inspect.Parameter.KEYWORD_ONLY, default=kind.start)
    return known


def read_spec(spec: str) -> tuple[type[Policy], dict[str, Any]]:
    """The policy that a spec names, and the settings it gives, converted; not yet whether the policy takes them."""
    name, settings = parse_spec(spec)
    if name not in POLICIES:
        offered = (name for name in policy_names() if POLICIES[name].live)
        raise PolicyError(f"unknown policy {name!r}; choose one of: {', '.join(offered)}")
    kind = POLICIES[name]
    known = settings_of(kind)
    values: dict[str, Any] = {}
    for key, text in settings.items():
        if not key:
            key = next(iter(known), "")  # the lone value of `fixed:math` is the first setting
        if key not in known:
            valid = f"it takes: {', '.join(known)}" if known else "it takes none"
            raise PolicyError(f"policy {name!r} has no setting {key or text!r}; {valid}")
        values[key] = _convert(name, key, text, known[key])
    return kind, values


def _convert(policy: str, key: str, text: str, parameter: inspect.Parameter) -> Any:
    converters: dict[type, Callable[[str], Any]] = {int: int, float: float}
    convert = converters.get(type(parameter.default), str)
    try:
        return convert(text)
    except ValueError:
        kind = "whole number" if convert is int else "number"
        raise PolicyError(f"policy {policy!r}: {key} must be a {kind}, got {text!r}") from None
