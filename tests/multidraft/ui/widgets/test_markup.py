from __future__ import annotations

from multidraft.ui.widgets import markup


def test_what_takes_the_focus_has_a_name() -> None:
    html = markup.table_html(("A",), [["1"]], label="Runs <b>")
    assert 'tabindex="0" role="group" aria-label="Runs &lt;b&gt;"' in html


def test_cells_are_escaped_but_for_html_of_templates() -> None:
    html = markup.table_html(("<i>", "B"), [["<b>x</b>", markup.best("<u>")]], figures=1)
    assert "<i>" not in html and "<td>&lt;b&gt;x&lt;/b&gt;</td>" in html
    assert '<td class="md-figure"><b class="md-best" title="The best">&lt;u&gt;</b></td>' in html
