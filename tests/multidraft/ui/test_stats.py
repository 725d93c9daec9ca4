from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from multidraft.lossless import Difference
from multidraft.regret import Regret
from multidraft.sampling import SamplingParams
from multidraft.ui import stats
from multidraft.ui.worker import Baseline


def job(
    generation: Any,
    phase: str = "done",
    ahead: int = 0,
    cancelled: bool = False,
    unscored: bool = False,
    compared: bool = True,
    temperature: float = 0.0,
) -> Any:
    request = SimpleNamespace(params=SamplingParams(temperature=temperature), policy="ucb:beta=0.1")
    return SimpleNamespace(
        generation=generation,
        request=request,
        phase=phase,
        ahead=ahead,
        cancelled=cancelled,
        unscored=unscored,
        compared=compared,
    )


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("completed", "as many tokens"),
        ("stopped", "ended its answer"),
        ("context_limit", "context window"),
        ("cancelled", "Cancelled"),
    ],
)
def test_every_end_is_told_with_its_counts(make_generation, status: str, words: str) -> None:
    html = stats.status_html(job(make_generation(status=status)))
    assert words in html
    assert "6 tokens in 2 rounds under UCB (beta=0.1)." in html
    assert 'role="status"' in html


def test_a_run_that_is_not_recorded_says_so(make_generation) -> None:
    ended = job(make_generation(status="stopped"))
    assert "Not in the history" in stats.status_html(ended, kept=False)
    assert "Not in the history" not in stats.status_html(ended)


def test_an_error_is_an_alert_with_its_message(make_generation) -> None:
    html = stats.status_html(job(make_generation(status="error", error="RuntimeError: <b>out of memory</b>")))
    assert 'role="alert"' in html
    assert "&lt;b&gt;out of memory" in html


def test_a_run_without_drafts_is_compared_with_itself(make_generation, make_round) -> None:
    rounds = [make_round(i, arm=None, drafter=None, drafted=(), accepted=0) for i in range(3)]
    assert "plain decoding as well" in stats.tiles_html(make_generation(rounds=rounds), Baseline(150.0, 32))
    short = stats.tiles_html(make_generation(rounds=rounds[:2]), Baseline(150.0, 32))
    assert "too short to say" in short and "speed-up only tells" not in short
    assert "plain decoding as well" not in stats.tiles_html(make_generation(), Baseline(150.0, 32))


def test_a_cancelled_run_does_not_look_completed(make_generation) -> None:
    html = stats.status_html(job(make_generation(status="cancelled")))
    assert "md-cancelled" in html and "md-done" not in html


@pytest.mark.parametrize(
    ("phase", "words"),
    [("measuring", "Measuring plain decoding"), ("decoding", "round 3"), ("waiting", "2 runs ahead")],
)
def test_phases_on_the_way(make_generation, phase: str, words: str) -> None:
    assert words in stats.status_html(job(make_generation(status="running"), phase, ahead=2))


def test_a_run_is_not_completed_while_it_is_checked(make_generation) -> None:
    def told(status: str, **changes: Any) -> str:
        return stats.status_html(job(make_generation(status=status), "scoring", **changes))

    assert "Decoded: 6 tokens in 2 rounds. Now checked, and the best drafter" in told("completed")
    assert "Now checked …" in told("completed", compared=False)
    assert "checked" not in told("completed", temperature=1.0)
    assert "Stopping" in told("completed", cancelled=True)
    assert "Stopped: 6 tokens in 2 rounds. Now they are checked" in told("cancelled", cancelled=True)
    assert all("md-busy" in told(status) for status in ("completed", "stopped", "context_limit", "cancelled"))
    assert 'role="alert"' in told("error")


def test_a_run_that_is_not_scored_says_so(make_generation) -> None:
    html = stats.status_html(job(make_generation(status="completed"), cancelled=True, unscored=True))
    assert "Completed" in html and "Regret not computed" in html
    assert "Regret" not in stats.status_html(job(make_generation(status="completed"), cancelled=True))


def test_only_a_new_phase_is_said_not_every_round(make_generation, make_round) -> None:
    def said(html: str) -> str:
        return re.findall(r'role="status">([^<]*)<', html)[0]

    lines = [
        stats.status_html(job(make_generation(status="running", rounds=[make_round(i) for i in range(n)]), "decoding"))
        for n in (1, 12)
    ]
    assert "round 2" in lines[0] and "round 13" in lines[1]
    assert [said(line) for line in lines] == ["Decoding under UCB (beta=0.1)"] * 2
    assert said(stats.status_html(job(make_generation()))).startswith("Completed")


def test_every_status_line_is_made_of_the_same_elements() -> None:
    """So Gradio changes the text of the live region and never puts another in its place."""
    lines = [stats.message_html("busy", "a"), stats.message_html("error", "b"), stats.message_html("busy", "c", "1")]
    lines.append(stats.progress_html("d", 1, 2, "label", "3").replace('<progress max="2" value="1"', "<progress"))
    shapes = [re.findall(r"<(/?\w+)", line) for line in lines]
    assert shapes[0] == shapes[1] == shapes[2] == [part for part in shapes[3] if part not in ("progress", "/progress")]


def test_tiles_show_dashes_before_the_first_round() -> None:
    assert stats.tiles_html().count("<dd>–</dd>") == 4


def test_tiles_show_the_figures(make_generation, make_round) -> None:
    html = stats.tiles_html(make_generation(rounds=[make_round(i) for i in range(3)]), Baseline(150.0, 32))
    assert "<dd>300</dd>" in html  # 9 tokens in 30 ms
    assert "<dd>2.00×</dd>" in html
    assert "<dd>3.00</dd>" in html
    assert "<dd>67 %</dd>" in html
    assert "150.0 tokens/s" in html and "32 tokens" in html


def test_a_few_tokens_have_no_speedup(make_generation) -> None:
    """One round in 5 ms would make any policy a winner."""
    short, running = (stats.tiles_html(make_generation(status=s), Baseline(150.0, 32)) for s in ("stopped", "running"))
    assert '<dt>Speed-up</dt><dd>–</dd><dd class="md-unit">too short to say</dd>' in short
    assert '<dt>Speed-up</dt><dd>–</dd><dd class="md-unit">over plain decoding</dd>' in running
    assert "<dd>300</dd>" in short


def test_note_tells_the_check_and_the_regret(make_generation) -> None:
    def note(differences):
        return stats.tiles_html(make_generation(), Baseline(150.0, 32), differences, Regret(1, 1, 1, 0.5))

    assert "6 tokens, each the target&#x27;s own greedy choice" in note([])
    assert "math is the best single drafter and needs 1 round;" in note([]) and "regret +1" in note([])
    assert "1 decided by rounding between all but equally probable" in note([Difference(1, 0.0312, True)])
    assert "0.031 apart" in note([Difference(1, 0.0312, True)])
    assert "Token 2 is not" in note([Difference(1, 2.5, False), Difference(3, 0.01, True)])


def test_plain_decoding_has_no_acceptance(make_generation, make_round) -> None:
    plain = make_round(0, arm=None, drafter=None, drafted=(), accepted=0)
    assert "<dt>Accepted</dt><dd>–</dd>" in stats.tiles_html(make_generation(rounds=[plain]))
    assert "<dt>Accepted</dt><dd>67 %</dd>" in stats.tiles_html(make_generation())
