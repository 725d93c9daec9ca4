"""What the endpoints for programs return, as types that their documentation is made of."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class RoundReport(TypedDict):
    """One round; ``storage.records.Round`` documents each entry."""

    index: int
    drafter: str | None
    drafted: int
    accepted: int
    text: str
    seconds: float


class Update(TypedDict):
    """How far a run is: all of its text so far, and the rounds since the update before."""

    status: str
    text: str
    tokens: int
    tokens_per_second: float
    new_rounds: list[RoundReport]


class PolicyReport(TypedDict):
    """A policy that can be asked for by its spec."""

    spec: str
    title: str
    explanation: str


class PoolReport(TypedDict):
    """The pool that decodes what is asked for now; ``status`` says in words what is loaded and what is on its way,
    ``news`` only the latter."""

    name: str
    title: str
    card_hash: str
    draft_length: int
    drafters: list[str]
    loading: bool
    status: str
    news: str


class BatchReport(TypedDict):
    """Of a batch a row for each prompt and policy, and their summary by task and policy."""

    rows: list[dict[str, Any]]
    summary: list[dict[str, Any]]


def endpoint(result: Any, takes: Callable[..., Any] | None = None) -> Callable[[Endpoint], Endpoint]:
    """Decorates an endpoint with the type that its callers get; of a stream, that of its items. Gradio takes it from
    the signature, where it has to be the type itself, not its name.

    Args:
        takes: whose parameters it has, and whose docstring explains them (its ``Args:``, which come last there).
    """

    def mark(endpoint: Endpoint) -> Endpoint:
        signature = inspect.signature(takes or endpoint).replace(return_annotation=result)
        endpoint.__signature__ = signature  # type: ignore[attr-defined]
        if takes is not None:
            endpoint.__annotations__ = takes.__annotations__
            about, returns, report = (inspect.getdoc(endpoint) or "").partition("Returns:")
            endpoint.__doc__ = f"{about}Args:{(inspect.getdoc(takes) or '').partition('Args:')[2]}\n\n{returns}{report}"
        return endpoint

    return mark
