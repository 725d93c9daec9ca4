from __future__ import annotations

from multidraft.ui import tables


def test_counts_have_one_form() -> None:
    assert [tables.count(n, "token") for n in (0, 1, 2, 51200)] == ["0 tokens", "1 token", "2 tokens", "51,200 tokens"]


def test_what_takes_the_focus_has_a_name() -> None:
    html = tables.table_html(("A",), [["1"]], label="Runs <b>")
    assert 'tabindex="0" role="group" aria-label="Runs &lt;b&gt;"' in html
