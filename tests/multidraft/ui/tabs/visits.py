"""What stands for a visitor's page in calls of a tab's handlers."""

from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import gradio as gr
from starlette.requests import Request


def visit(query: str = "", **named: str) -> gr.Request:
    """Of a page with this query, or these parameters."""
    scope = {"type": "http", "path": "/", "headers": [], "query_string": (query or urlencode(named)).encode()}
    asked = Request({**scope, "server": ("page.example", 80), "scheme": "http", "root_path": ""})
    return gr.Request(asked, session_hash="someone")


def click(**data: Any) -> Any:
    """For ``gr.EventData``: of a click of which a script says this."""
    return SimpleNamespace(**{"target": None, **data})
