from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from multidraft import ui
from multidraft.ui.widgets.templates import macros, render

HOME = Path(str(ui.__file__)).parent
CLIENT = {"race.html", "output.html"}
"""Filled by scripts in the browser."""


def test_text_is_escaped_wherever_it_comes_from() -> None:
    line = macros("widgets/markup.html").message("idle", "<b>", Markup("<i>kept</i>"))
    assert "&lt;b&gt;" in line and "<i>kept</i>" in line and isinstance(line, Markup)


def test_what_a_template_needs_must_be_given() -> None:
    with pytest.raises(UndefinedError):
        str(macros("widgets/markup.html").message("idle"))


def test_every_template_can_be_read() -> None:
    templates = [path for path in HOME.rglob("*.html") if path.name not in CLIENT]
    assert len(templates) > 8
    for path in templates:
        render(path.relative_to(HOME).as_posix())


def test_only_templates_make_html() -> None:
    """Nothing in the code may call a text safe; figures of Plotly and the rows of a batch escape by themselves."""
    for path in HOME.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "|safe" not in text and "autoescape=False" not in text, path
        assert not re.search("""f['"]<(?!script>)""", text), path
