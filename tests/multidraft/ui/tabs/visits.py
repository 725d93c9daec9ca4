"""What stands for a visitor's page in calls of a tab's handlers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from starlette.datastructures import QueryParams


def visit(query: str = "", **named: str) -> Any:
    """For ``gr.Request``: of a page with this query, or these parameters."""
    return SimpleNamespace(query_params=QueryParams(query or named))


def click(**data: Any) -> Any:
    """For ``gr.EventData``: of a click of which a script says this."""
    return SimpleNamespace(**{"target": None, **data})
