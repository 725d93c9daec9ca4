"""Policies: which drafter to trust next. Importing this package registers every policy of the house.

To add one, write a class with ``@register`` in a file of this folder and import that file below; it then
appears in the interface, the command line and the benchmark.
"""

from multidraft.policies import (  # noqa: F401  (importing registers)
    elimination,
    exp3,
    hedge,
    nonstationary,
    posterior,
    static,
    ucb,
)
from multidraft.policies.base import (
    NO_DRAFTER,
    POLICIES,
    Feedback,
    Policy,
    make_policy,
    parse_spec,
    policy_names,
    register,
)

__all__ = [
    "NO_DRAFTER",
    "POLICIES",
    "Feedback",
    "Policy",
    "make_policy",
    "parse_spec",
    "policy_names",
    "register",
]
