"""What is said of runs made under different conditions."""

from __future__ import annotations

from typing import Any

import pandas as pd

from multidraft.ui.dashboard_mixture import mixture_html, usual
from storage.figures import CONDITIONS

KNOWN = {"pool": "pocket", "card_hash": "c0ffee", "hardware": "CPU", "dtype": "float32", "version": "1"}


def conditions(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame([{**KNOWN, **row} for row in rows], columns=[*CONDITIONS, "source", "runs"])


def test_runs_of_the_page_compare_whatever_tab_they_are_from() -> None:
    frame = conditions({"source": "play", "runs": 3}, {"source": "race", "runs": 2})
    assert mixture_html(frame) == ""
    assert usual(frame).runs == 5 and usual(frame).chosen["source"] == []


def test_speedups_of_bench_do_not_compare_with_others() -> None:
    frame = conditions({"source": "bench", "runs": 4}, {"source": "play", "runs": 3}, {"source": "batch", "runs": 2})
    assert "Plain decoding measured over" in mixture_html(frame)
    assert usual(frame).runs == 5 and usual(frame).chosen["source"] == ["batch", "play"]


def test_what_is_unknown_is_told_and_cannot_be_chosen() -> None:
    frame = conditions(
        {"source": "play", "runs": 4, "card_hash": None}, {"source": "play", "runs": 3, "hardware": "<b>GPU</b>"}
    )
    html = mixture_html(frame)
    assert "unknown (4 runs)" in html and "&lt;b&gt;GPU&lt;/b&gt; (3 runs)" in html
    assert usual(frame).chosen["card"] == "" and usual(frame).chosen["hardware"] == "CPU"
