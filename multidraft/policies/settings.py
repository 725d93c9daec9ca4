"""Settings of policies: types, bounds, choices and descriptions are stated once, as pydantic fields."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drafters.errors import PolicyError, meant

Value = int | float | str

Start = Annotated[
    Literal["cold", "router", "traffic", "previous"],
    Field(
        description="what a query begins with: nothing, the router's guess, what past queries taught about such "
        "prompts (without any: the router's guess), or the results of the previous query"
    ),
]
"""A warm start (:meth:`~multidraft.policies.base.Policy.warm_up`)."""

STARTS = {
    "cold": "cold",
    "router": "from the router's guess",
    "traffic": "from what past queries taught, else from the router's guess",
    "previous": "from the previous query",
}
"""How a query begins under each start, in words."""

Reward = Annotated[
    Literal["bd", "be"], Field(description="block divergence (MetaSD Eq. 4) or block efficiency (MetaSD §2.3)")
]
DrafterName = Annotated[str, Field(description="name of a drafter of the pool", json_schema_extra={"drafter": True})]


class PolicySettings(BaseModel):
    """Settings of a policy: one field each, with a description and, where it is a number, bounds.

    A field without a default must be given. In specs and forms a class's own fields come before those it inherits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Settings of the given values, which may be texts.

        Raises:
            PolicyError: a value that is missing, unknown, of another type or out of bounds.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise PolicyError(explained(cls, error)) from None


class WarmStart(PolicySettings):
    """Settings of a policy that can begin with a guess about the drafters."""

    start: Start = "cold"


@dataclass(frozen=True)
class Setting:
    """What is known of one setting.

    Attributes:
        default: its value where a spec does not give it; ``None`` where it must.
        valid: what it can be, in words, such as ``a number above 0 and at most 1``.
        minimum, maximum: bounds of a number, ``None`` where it has none.
        choices: of a text all that it can be; empty for any.
        names_drafter: whether it is the name of a drafter.
    """

    name: str
    description: str
    type: type[Value]
    default: Value | None
    valid: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    names_drafter: bool = False

    @property
    def numeric(self) -> bool:
        """Whether it is a number."""
        return self.type is not str

    @property
    def whole(self) -> bool:
        """Whether it is a whole number."""
        return self.type is int


@lru_cache(maxsize=256)
def settings_of_model(model: type[PolicySettings]) -> dict[str, Setting]:
    """The settings of a model in their order: its own before those of its bases, ``start`` last."""
    schema = model.model_json_schema()["properties"] if model.model_fields else {}
    own_first = dict.fromkeys(name for base in model.__mro__ for name in inspect.get_annotations(base))
    names = sorted((name for name in own_first if name in schema), key=lambda name: name == "start")
    return {name: _setting(name, schema[name]) for name in names}


def _setting(name: str, schema: Mapping[str, Any]) -> Setting:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    choices = tuple(map(str, schema.get("enum", ())))
    valid = f"one of: {', '.join(choices)}" if choices else "a text"
    kind: type[Value] = {"integer": int, "number": float}.get(schema.get("type", ""), str)
    if kind is not str:
        valid = "a whole number" if kind is int else "a number"
        if "minimum" in schema and "maximum" in schema:
            valid += f" from {low:,} to {high:,}"
        else:
            bounds = [] if low is None else [f" {'at least' if 'minimum' in schema else 'above'} {low:,}"]
            bounds += [] if high is None else [f" {'at most' if 'maximum' in schema else 'below'} {high:,}"]
            valid += " and".join(bounds)
    described = schema.get("description", ""), kind, schema.get("default")
    return Setting(name, *described, valid, low, high, choices, bool(schema.get("drafter")))


def explained(model: type[PolicySettings], error: ValidationError) -> str:
    """The first fault of some settings in one line: what is wrong, and what is valid."""
    known = settings_of_model(model)
    # A value that is wrong says more than one that is missing.
    fault = min(error.errors(), key=lambda fault: fault["type"] == "missing")
    name = ".".join(map(str, fault["loc"]))
    if fault["type"] == "missing":
        return f"the setting {name!r} must be given"
    if fault["type"] == "extra_forbidden":
        takes = f"it takes: {', '.join(known)}" if known else "it takes none"
        return f"there is no setting {name!r:.60}; {meant(name, known)}{takes}"
    if name in known:
        return f"{name} must be {known[name].valid}; got {fault['input']!r:.60}"
    return str(fault.get("ctx", {}).get("error", fault["msg"]))
