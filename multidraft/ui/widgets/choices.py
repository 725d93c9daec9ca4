"""Policies to choose from, found by title or spec, and what each does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from drafters.errors import PolicyError
from multidraft.policies import make_policy
from multidraft.ui.widgets.templates import macros


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


def explanation_html(spec: str, drafters: Sequence[str]) -> Markup:
    """What the policy does and where it comes from; for a spec that cannot be used, what is wrong with it."""
    template = macros("widgets/choices.html")
    try:
        policy = make_policy(spec, drafters)
    except PolicyError as error:
        return template.refusal(str(error))
    return template.explanation(policy.explanation, policy.source)
