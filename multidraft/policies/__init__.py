"""Policies: which drafter to trust next. Importing this package registers every policy of the house.

To add one, write a class with ``@register`` in a file of this folder; it then appears in the interface, the command
line and the benchmark.
"""

from importlib import import_module
from pkgutil import iter_modules

from multidraft.policies.base import (
    ALL_DRAFTERS,
    NO_DRAFTER,
    POLICIES,
    Context,
    Feedback,
    Policy,
    policy_names,
    register,
)
from multidraft.policies.settings import PolicySettings, Setting, WarmStart
from multidraft.policies.specs import (
    canonical_spec,
    check_live,
    make_policy,
    parse_spec,
    settings_of,
)

__all__ = [
    "ALL_DRAFTERS",
    "NO_DRAFTER",
    "POLICIES",
    "Context",
    "Feedback",
    "Policy",
    "PolicySettings",
    "Setting",
    "WarmStart",
    "canonical_spec",
    "check_live",
    "make_policy",
    "parse_spec",
    "policy_names",
    "register",
    "settings_of",
]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
