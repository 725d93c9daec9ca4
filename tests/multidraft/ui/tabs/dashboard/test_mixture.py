"""What is said of runs made under different conditions."""

from typing import Any

import pandas as pd

from multidraft.ui.tabs.dashboard.views import mixture_html, usual, usual_title
from storage.aggregates import CONDITIONS

KNOWN = {
    "pool": "pocket",
    "card_hash": "c0ffee",
    "hardware": "CPU",
    "dtype": "float32",
    "version": "1",
    "baseline_kind": "prefix",
    "draft_length": "12",
    "temperature": "0.0",
    "max_new_tokens": "64",
}


def conditions(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame([{**KNOWN, **row} for row in rows], columns=[*CONDITIONS, "runs"])


def test_runs_under_the_same_conditions_compare() -> None:
    assert mixture_html(conditions({"runs": 5})) == "" == usual_title(conditions({"runs": 5}))


def test_speedups_over_different_baselines_do_not_compare() -> None:
    frame = conditions({"baseline_kind": "answer", "runs": 4}, {"runs": 5}, {"baseline_kind": None, "runs": 1})
    html = mixture_html(frame)
    assert "Autoregressive baseline" in html and "whole answer (4 runs)" in html and "no baseline (1 run)" in html
    assert usual(frame)["baseline_kind"] == "prefix"
    assert usual_title(frame) == "Show only 5 runs: autoregressive baseline first tokens, their median"


def test_runs_with_other_settings_do_not_compare() -> None:
    frame = conditions({"runs": 5}, {"draft_length": "4", "temperature": "0.7", "runs": 4})
    html = mixture_html(frame)
    assert "Draft length:" in html and "12 (5 runs), 4 (4 runs)" in html and "0 (greedy) (5 runs)" in html
    assert "Max new tokens" not in html and usual(frame)["draft_length"] == "12"
    assert usual_title(frame) == "Show only 5 runs: draft length 12, temperature 0 (greedy)"


def test_what_is_unknown_is_told_and_cannot_be_chosen() -> None:
    frame = conditions({"runs": 4, "card_hash": None}, {"runs": 3, "hardware": "<b>GPU</b>"})
    html = mixture_html(frame)
    assert "unknown (4 runs)" in html and "&lt;b&gt;GPU&lt;/b&gt; (3 runs)" in html
    assert usual(frame)["card_hash"] == "" and usual(frame)["hardware"] == "CPU"
    assert usual_title(frame) == "Show only 4 runs: hardware CPU"
