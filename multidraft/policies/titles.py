"""Policies by readable names, and which of them a pool can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from drafters.errors import PolicyError
from multidraft.policies import POLICIES, make_policy, parse_spec, policy_names

DEFAULT_POLICY = "rate-hedge"
"""The policy of page, API and command line unless another is asked for. In Python it is one that does not look at the
clock, so that a seed gives the same run again."""


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
