"""What a visitor can choose: policies by readable names, explained; parameters, checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from multidraft.errors import PolicyError, UserError
from multidraft.policies import POLICIES, make_policy, parse_spec, policy_names
from multidraft.sampling import SamplingParams

DEFAULT_POLICY = "rate-hedge"

_TITLES = {
    "max_new_tokens": "max new tokens",
    "top_p": "top-p",
    "top_k": "top-k",
    "draft_length": "draft length",
}
"""What the page calls parameters."""


def policy_choices(drafters: Sequence[str], routed: bool = True) -> list[tuple[str, str]]:
    """Pairs of title and spec: every policy of the house, and one entry per drafter where it needs to be named.

    Args:
        routed: whether the pool has a router; policies that need one are left out otherwise.
    """
    whole: list[tuple[str, str]] = []
    by_drafter: list[tuple[str, str]] = []
    for name in policy_names():
        if not POLICIES[name].live or (POLICIES[name].needs_route and not routed):
            continue
        title = POLICIES[name].title
        try:
            make_policy(name, drafters)
            whole.append((title, name))
        except PolicyError:  # it cannot be made without naming a drafter
            by_drafter += [(f"{title}: {drafter}", f"{name}:{drafter}") for drafter in drafters]
    whole.sort(key=lambda choice: (choice[1] != DEFAULT_POLICY, choice[0].lower()))
    return whole + by_drafter


def with_specs(offered: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same choices, each title with its spec: ``UCB · ucb``; so it is found by either.

    A field where one types takes the first choice that has the text anywhere in it, so whatever is named within another
    choice comes before that: typing ``ucb`` does not end up at ``d-ucb``.
    """
    times = Counter(_name(spec) for _, spec in offered)
    sorted_: list[tuple[str, str]] = []
    for title, spec in offered:
        keys = {title.lower(), spec.lower()} | ({_name(spec)} if times[_name(spec)] == 1 else set())
        within = (i for i, (label, _) in enumerate(sorted_) if any(key in label.lower() for key in keys))
        sorted_.insert(next(within, len(sorted_)), (f"{title} · {spec}", spec))
    return sorted_


def _name(spec: str) -> str:
    return spec.partition(":")[0].lower()


def policy_title(spec: str) -> str:
    """The readable name of a spec, its settings kept: ``UCB (beta=0.1)``; the spec itself if it is unknown."""
    name, settings = parse_spec(spec)
    if name not in POLICIES:
        return spec
    values = ", ".join(f"{key}={value}" if key else value for key, value in settings.items())
    return POLICIES[name].title + (f" ({values})" if values else "")


def policy_titles(specs: Sequence[str]) -> dict[str, str]:
    """The readable name of each spec; with the spec itself where two would have the same, as histories may hold
    ``ucb`` and ``UCB``."""
    titles = {spec: policy_title(spec) for spec in specs}
    times = Counter(titles.values())
    return {spec: title if times[title] == 1 else f"{title} · {spec}" for spec, title in titles.items()}


def explanation_html(spec: str, drafters: Sequence[str]) -> str:
    """What the policy does and where it comes from; for a spec that cannot be used, what is wrong with it."""
    try:
        policy = make_policy(spec, drafters)
    except PolicyError as error:
        return f'<p class="md-explain md-error" role="alert">{escape(str(error))}</p>'
    source = f'<span class="md-source">Source: {escape(policy.source)}.</span>'
    return (
        '<details class="md-explain"><summary>How this policy chooses</summary>'
        f"<p>{escape(policy.explanation)} {source}</p></details>"
    )


def make_params(
    max_new_tokens: float | None,
    temperature: float | None,
    top_p: float | None,
    top_k: float | None,
    draft_length: float | None,
) -> SamplingParams:
    """Parameters from the page's numbers.

    Raises:
        UserError: a field is empty or out of range; the message names it.
    """
    try:
        return SamplingParams(
            max_new_tokens=whole_number("max new tokens", max_new_tokens),
            temperature=real_number("temperature", temperature),
            top_p=real_number("top-p", top_p),
            top_k=whole_number("top-k", top_k),
            draft_length=whole_number("draft length", draft_length),
        )
    except UserError:
        raise
    except ValueError as error:
        name, *rest = str(error).split(" ", 1)
        raise UserError(" ".join((_TITLES.get(name, name), *rest))) from None


def whole_number(name: str, value: float | None) -> int:
    """``value`` as an int.

    Raises:
        UserError: it is missing or has a fraction.
    """
    number = real_number(name, value)
    if not number.is_integer():
        raise UserError(f"{name} must be a whole number, got {value}")
    return int(number)


def real_number(name: str, value: float | None) -> float:
    """``value`` as a float.

    Raises:
        UserError: it is missing or no number.
    """
    if value is None:
        raise UserError(f"{name} is empty; enter a number")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{name} must be a number, got {value!r:.40}")
    return float(value)
