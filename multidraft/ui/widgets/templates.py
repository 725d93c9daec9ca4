"""HTML from the templates that stand beside the code that fills them.

All text is escaped on its way into a template, unless it is :class:`markupsafe.Markup`, which only templates make.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from multidraft.ui.widgets import formats

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters.update({name: getattr(formats, name) for name in formats.__all__})


def render(template: str, /, **values: Any) -> Markup:
    """A template filled in; its name is its path below ``ui``. A value that it needs and is not given is an error."""
    return Markup(_environment.get_template(template).render(values))


@cache
def macros(template: str) -> Any:
    """The macros of a template as functions that return ``Markup``."""
    return _environment.get_template(template).module
