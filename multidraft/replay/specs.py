"""Policies as they are replayed: recorded texts do not hold all that some learn from."""

from __future__ import annotations

from drafters.errors import PolicyError
from multidraft.policies import canonical_spec, make_policy
from multidraft.policies.specs import read_spec, settings_of, stand_ins, with_setting


def without_divergence(spec: str) -> str:
    """``spec`` in its one spelling, with ``reward=be`` where it would learn from block divergence, which recorded texts
    do not hold.

    Raises:
        PolicyError: no pool can play it, or it can learn from nothing else.
    """
    kind, values = read_spec(spec)
    if kind.name == "fixed" or not make_policy(spec, stand_ins(values)).uses_block_divergence:
        return canonical_spec(spec)
    if "reward" not in settings_of(kind):
        raise PolicyError(f"policy {kind.name!r} learns from block divergence, which recorded texts do not hold")
    return with_setting(spec, "reward", "be")


def replayed_as(spec: str) -> str:
    """The same; a policy that no pool can play, as a history may hold it, stays what it is."""
    try:
        return without_divergence(spec)
    except PolicyError:
        return spec
