from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from multidraft.regret import Regret
from multidraft.ui import stats
from multidraft.ui.worker import Agreement, Baseline


def job(generation: Any, phase: str = "done", ahead: int = 0) -> Any:
    return SimpleNamespace(generation=generation, phase=phase, ahead=ahead)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("completed", "most new tokens"),
        ("stopped", "ended its answer"),
        ("context_limit", "context window"),
        ("cancelled", "Cancelled"),
    ],
)
def test_every_end_is_told_with_its_counts(make_generation, status: str, words: str) -> None:
    html = stats.status_html(job(make_generation(status=status)))
    assert words in html
    assert "6 tokens in 2 rounds" in html
    assert 'role="status"' in html


def test_an_error_is_an_alert_with_its_message(make_generation) -> None:
    html = stats.status_html(job(make_generation(status="error", error="RuntimeError: <b>out of memory</b>")))
    assert 'role="alert"' in html
    assert "&lt;b&gt;out of memory" in html


@pytest.mark.parametrize(
    ("phase", "words"),
    [("measuring", "Measuring plain decoding"), ("decoding", "round 3"), ("waiting", "2 runs ahead")],
)
def test_phases_on_the_way(make_generation, phase: str, words: str) -> None:
    assert words in stats.status_html(job(make_generation(status="running"), phase, ahead=2))


def test_tiles_show_dashes_before_the_first_round() -> None:
    assert stats.tiles_html().count("<dd>–</dd>") == 4


def test_tiles_show_the_figures(make_generation) -> None:
    html = stats.tiles_html(make_generation(), Baseline(150.0, tuple(range(32)), False))
    assert "<dd>300</dd>" in html  # 6 tokens in 20 ms
    assert "<dd>2.00×</dd>" in html
    assert "<dd>3.00</dd>" in html
    assert "<dd>67 %</dd>" in html
    assert "150.0 tokens/s" in html and "32 tokens" in html


def test_note_tells_agreement_and_regret(make_generation) -> None:
    baseline = Baseline(150.0, (5, 6, 9), False)
    html = stats.tiles_html(make_generation(), baseline, Agreement(3, None, None), Regret(1, 1, 1, 0.5))
    assert "3 tokens, all the same" in html
    assert "math, needs 1 round " in html and "regret +1" in html
    assert "Token 2 differs" in stats.tiles_html(make_generation(), baseline, Agreement(3, 2, False))
