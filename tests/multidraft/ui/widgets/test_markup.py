import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from drafters.errors import UserError
from multidraft import ui
from multidraft.bench.suites import LineProblem, Suite, SuiteItem
from multidraft.ui.tabs.batch.view import suite_html
from multidraft.ui.widgets import markup
from multidraft.ui.widgets.markup import count, listed_of, macros, sentence

HOME = Path(str(ui.__file__)).parent
CLIENT = {"lanes.html", "output.html"}
"""Filled by scripts in the browser."""


def test_text_is_escaped_wherever_it_comes_from() -> None:
    line = macros("widgets/markup.html").message("idle", "<b>", Markup("<i>kept</i>"))
    assert "&lt;b&gt;" in line and "<i>kept</i>" in line and isinstance(line, Markup)


def test_no_name_turns_the_line_that_it_stands_in() -> None:
    turned, name = "suite\u202egnp.exe", "suitegnp.exe"
    line = markup.message_html("done", f"Suite “{turned}” on pool tiny", Markup("<i>\u2067now</i>"))
    assert f"Suite “{name}” on pool tiny" in line and "<i>now</i>" in line
    suite = Suite(turned, [SuiteItem(turned, "Add 2 and 3.", turned)], [LineProblem(2, turned)])
    assert f"{name} 1" in suite_html(suite) and f"Line 2: {name}" in suite_html(suite)
    assert "\u202e" not in suite_html(suite) + macros("tabs/batch/batch.html").opener(0, turned, "Add 2 and 3.")


def test_what_a_template_needs_must_be_given() -> None:
    with pytest.raises(UndefinedError):
        str(macros("widgets/markup.html").message("idle"))


def test_every_template_can_be_read() -> None:
    templates = [path for path in HOME.rglob("*.html") if path.name not in CLIENT]
    assert len(templates) > 8
    for path in templates:
        macros(path.relative_to(HOME).as_posix())


def test_only_templates_make_html() -> None:
    """Nothing in the code may call a text safe; figures of Plotly, the rows of a batch and pictures of results escape
    by themselves."""
    for path in (path for path in HOME.rglob("*.py") if path.name != "picture.py"):
        text = path.read_text(encoding="utf-8")
        assert "|safe" not in text and "autoescape=False" not in text, path
        assert not re.search("""f['"]<(?!script>)""", text), path


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("empty.txt holds no prompt", "empty.txt holds no prompt."),
        ("max_new_tokens must be at least 1", "max_new_tokens must be at least 1."),
        ("max new tokens must be at least 1.", "Max new tokens must be at least 1."),
        ("top-p must be above 0", "Top-p must be above 0."),
        ("Race: it ends. Or does it…", "Race: it ends. Or does it…"),
        ("", "."),
    ],
)
def test_a_message_becomes_a_sentence_and_names_stay_as_they_are(message: str, said: str) -> None:
    assert sentence(UserError(message)) == said


def test_a_page_of_a_list_says_which_stand_on_it() -> None:
    assert listed_of("Run", 1_001, 20, 5_000) == "Runs 1,001–1,020 of 5,000"
    assert listed_of("Result", 21, 1, 21) == "Result 21 of 21"


def test_counts_have_one_form() -> None:
    assert [count(n, "token") for n in (0, 1, 2, 51200)] == ["0 tokens", "1 token", "2 tokens", "51,200 tokens"]
    assert [count(n, "policy") for n in (1, 2)] == ["1 policy", "2 policies"]


def test_what_rounds_to_zero_has_no_sign_of_its_own() -> None:
    assert (markup.number(-0.02, 1), markup.signed(-0.3, 0), markup.number(-0.06, 1)) == ("0.0", "0", "-0.1")


def test_what_takes_the_focus_has_a_name() -> None:
    html = markup.table_html(("A",), [["1"]], label="Runs <b>")
    assert 'tabindex="0" role="group" aria-label="Runs &lt;b&gt;"' in html


def test_cells_are_escaped_but_for_html_of_templates() -> None:
    html = markup.table_html(("<i>", "B"), [["<b>x</b>", markup.best("<u>")]], figures=1)
    assert "<i>" not in html and "<td>&lt;b&gt;x&lt;/b&gt;</td>" in html
    assert '<td class="md-figure"><b class="md-best" title="Better' in html and "&lt;u&gt;</b></td>" in html


def test_a_speed_up_comes_with_its_uncertainty_or_why_there_is_none() -> None:
    assert "1.85× ±\N{NO-BREAK SPACE}0.19" in markup.times(1.85, 90, 0.1) and "1.67× to 2.04×" in markup.times(
        1.85, 90, 0.1
    )
    noisy = markup.times(1.85, 90, 0.3)
    assert ">1.29–2.41×<" in noisy and "1.29× to 2.41×" in noisy
    assert "Faster, but by how much is uncertain, since the machine was busy" in noisy
    assert ">too noisy<" in (unknown := markup.times(1.85, 90, 0.6)) and "Faster or slower: cannot tell" in unknown
    assert markup.times(1.85, 90) == markup.times(1.85, 90, None) == "1.85×"
    assert markup.times(1.0, 90, 0.0) == "1.00×"
    assert "fewer than" in markup.times(None, 3, 0.1)


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("≈ 2.10× (1.80–2.40)", "≈ 2.10×<small>1.80–2.40</small>"),
        ("2.10× ± 0.15", "2.10×<small>± 0.15</small>"),
        ("faster: 2.11–6.02×", "faster<small>2.11–6.02×</small>"),
        ("2.10×", "2.10×"),
        ("too noisy", "too noisy"),
    ],
)
def test_an_interval_stands_below_its_ratio(cell: str, shown: str) -> None:
    assert markup.ratio_html(cell) == shown
