import re
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest

from drafters.sampling import SamplingParams
from drafters.traffic import Prior
from multidraft.engine.lossless import Difference
from multidraft.ui.tabs.play import view
from multidraft.ui.widgets.markup import message_html, progress_html
from storage import figures
from storage.run import Baseline
from tests.runs import make_generation, make_round, make_run

BASELINE = Baseline("prefix", 32, 1 / 150, 0.0)


def job(generation: Any, phase: str = "done", cancelled: bool = False, unscored: bool = False, **more: Any) -> Any:
    """Stands for a ``Measurement``."""
    params = SamplingParams(temperature=more.pop("temperature", 0.0))
    request = SimpleNamespace(params=params, policy="ucb:beta=0.1")
    known = {"compared": True, "timed_again": False, **more}
    known |= {"phase": phase, "cancelled": cancelled, "unscored": unscored}
    return SimpleNamespace(generation=generation, request=request, **known)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch):
    """Has short answers be long enough for a speed-up, and the timings of all put it off by so much."""

    def by(uncertainty: float) -> None:
        for module in (figures, view):
            monkeypatch.setattr(module, "FEWEST_TOKENS", 1)
        monkeypatch.setattr(type(make_generation()), "uncertainty", uncertainty)

    return by


def tiles(generation: Any, differences: Any = None, **known: Any) -> str:
    return view.tiles_html(make_run(generation, **{"baseline": BASELINE, **known}), differences)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("completed", "Ended at max tokens."),
        ("stopped", "end of sequence (EOS)"),
        ("context_limit", "context window"),
        ("cancelled", "Stopped."),
    ],
)
def test_every_end_is_told_with_its_counts(status: str, words: str) -> None:
    html = view.status_html(job(make_generation(status=status)))
    assert words in html
    assert "6 tokens in 2 rounds under UCB (beta=0.1)." in html
    assert 'role="status"' in html


def test_a_run_that_is_not_recorded_says_so() -> None:
    ended = job(make_generation(status="stopped"))
    assert "Not in the history" in view.status_html(ended, recorded=False)
    assert "Not in the history" not in view.status_html(ended)


def test_a_prompt_of_no_task_gets_no_green_tick() -> None:
    ended = job(make_generation(status="stopped"))
    shown = view.status_html(ended, fits=False)
    assert "md-odd" in shown and "unlike the tasks of this pool" in shown
    assert "md-odd" not in view.status_html(ended)


def test_an_error_is_an_alert_with_its_message() -> None:
    html = view.status_html(job(make_generation(status="error", error="RuntimeError: <b>out of memory</b>")))
    assert 'role="alert"' in html
    assert "&lt;b&gt;out of memory" in html


def test_a_run_without_drafts_is_compared_with_itself() -> None:
    rounds = [make_round(i, arm=None, drafter=None, drafted=(), accepted=0) for i in range(3)]
    assert "this is autoregressive decoding itself" in tiles(make_generation(rounds=rounds))
    assert "too short to say" in tiles(make_generation(rounds=rounds[:2]))
    assert "autoregressive decoding itself" not in tiles(make_generation())


def test_a_cancelled_run_does_not_look_completed() -> None:
    html = view.status_html(job(make_generation(status="cancelled")))
    assert "md-cancelled" in html and "md-done" not in html


@pytest.mark.parametrize(
    ("phase", "words"),
    [("measuring", "Measuring autoregressive decoding"), ("decoding", "round 3"), ("waiting", "2 jobs ahead")],
)
def test_phases_on_the_way(phase: str, words: str) -> None:
    assert words in view.status_html(job(make_generation(status="running"), phase), ahead=2)


def test_that_the_rounds_are_timed_again_is_said() -> None:
    html = view.status_html(job(make_generation(), "measuring", timed_again=True))
    assert "Timing the same rounds again" in html


def test_a_run_is_not_completed_while_it_is_checked() -> None:
    def told(status: str, **changes: Any) -> str:
        return view.status_html(job(make_generation(status=status), "scoring", **changes))

    assert "Decoded: 6 tokens in 2 rounds. Checking them and finding the best drafter" in told("completed")
    assert "Checking them …" in told("completed", compared=False)
    assert "Checking" not in told("completed", temperature=1.0)
    assert "Stopping" in told("completed", cancelled=True)
    assert "Stopped: 6 tokens in 2 rounds. Checking them" in told("cancelled", cancelled=True)
    assert all("md-busy" in told(status) for status in ("completed", "stopped", "context_limit", "cancelled"))
    assert 'role="alert"' in told("error")


def test_a_run_that_is_not_scored_says_so() -> None:
    html = view.status_html(job(make_generation(status="completed"), cancelled=True, unscored=True))
    assert "Ended at max tokens." in html and "Regret not computed" in html
    assert "Regret" not in view.status_html(job(make_generation(status="completed"), cancelled=True))


def test_an_answer_without_visible_text_says_so() -> None:
    blank = make_generation(rounds=[make_round(text="\n")])
    assert "decode to no visible text" in view.status_html(job(blank))
    assert "decode to no" not in view.status_html(job(make_generation()))


def test_only_a_new_phase_is_said_not_every_round() -> None:
    def said(html: str) -> str:
        return re.findall(r'role="status">([^<]*)<', html)[0]

    lines = [
        view.status_html(job(make_generation(status="running", rounds=[make_round(i) for i in range(n)]), "decoding"))
        for n in (1, 12)
    ]
    assert "round 2" in lines[0] and "round 13" in lines[1]
    assert [said(line) for line in lines] == ["Decoding under UCB (beta=0.1)"] * 2
    assert said(view.status_html(job(make_generation()))).startswith("Ended")


def test_every_status_line_is_made_of_the_same_elements() -> None:
    """So Gradio changes the text of the live region and never puts another in its place."""
    lines = [message_html("busy", "a"), message_html("error", "b"), message_html("busy", "c", "1")]
    lines.append(progress_html("d", 1, 2, "label", "3").replace('<progress max="2" value="1"', "<progress"))
    shapes = [re.findall(r"<(/?\w+)", line) for line in lines]
    assert shapes[0] == shapes[1] == shapes[2] == [part for part in shapes[3] if part not in ("progress", "/progress")]


def test_tiles_show_dashes_before_the_first_round() -> None:
    assert view.tiles_html().count("<dd>–</dd>") == 4


def test_tiles_show_the_figures() -> None:
    html = tiles(make_generation(rounds=[make_round(i) for i in range(3)]))
    assert "<dd>300</dd>" in html  # 9 tokens in 30 ms
    assert "<dd>2.00×</dd>" in html
    assert "<dd>3.00</dd>" in html
    assert "<dd>67 %</dd>" in html
    assert "150.0 tokens/s" in html and "32 tokens" in html


def test_a_few_tokens_have_no_speedup() -> None:
    """One round in 5 ms would make any policy a winner."""
    short = tiles(make_generation(status="stopped"))
    assert '<dt>Decode speed-up</dt><dd>–</dd><dd class="md-unit">too short to say</dd>' in short
    assert "<dd>300</dd>" in short


def test_figures_that_may_still_change_look_like_it() -> None:
    def shown(status: str, ended: bool, **known: Any) -> str:
        return view.tiles_html(make_run(make_generation(status=status), **{"baseline": None, **known}), ended=ended)

    decoding, timing = shown("running", False), shown("stopped", False)
    assert 'class="md-tiles md-decoding"' in decoding and "measured at the end" in decoding and "so far" in decoding
    assert 'class="md-tiles md-timing"' in timing and "being timed" not in timing and "tokens/s, timing …" in timing
    for final in (shown("stopped", False, baseline=BASELINE), shown("cancelled", True), view.tiles_html()):
        assert 'class="md-tiles "' in final and '<dd class="md-unit">tokens/s</dd>' in final


def test_note_tells_the_check_and_the_regret() -> None:
    def note(differences):
        return tiles(
            make_generation(), differences, regret_rounds=1, best_drafter="math", drafter_rounds={"code": 2, "math": 1}
        )

    assert "6 tokens, each the target&#39;s own greedy choice" in note([])
    assert "The best single drafter, math, needs 1 round;" in note([]) and "regret +1" in note([])
    assert "1 decided by rounding between near-ties" in note([Difference(1, 0.0312, True)])
    assert "0.031 apart" in note([Difference(1, 0.0312, True)])
    assert "Token 2 is not" in note([Difference(1, 2.5, False), Difference(3, 0.01, True)])


def test_plain_decoding_has_no_acceptance() -> None:
    plain = make_round(0, arm=None, drafter=None, drafted=(), accepted=0)
    assert "<dt>Acceptance rate</dt><dd>–</dd>" in tiles(make_generation(rounds=[plain]))
    assert "<dt>Acceptance rate</dt><dd>67 %</dd>" in tiles(make_generation())


@pytest.mark.parametrize(
    ("off", "shown", "hidden"),
    [
        (0.1, "± 0.", "faster"),
        (0.4, '<dd>faster</dd><dd class="md-unit">', "request "),
        (0.9, '<dd>–</dd><dd class="md-unit">cannot tell: ', "faster"),
    ],
)
def test_a_speed_up_says_how_certain_it_is(timed, off: float, shown: str, hidden: str) -> None:
    timed(off)
    html = tiles(make_generation(status="stopped"), baseline=Baseline("answer", 6, 1 / 150, 0.0, 0.02))
    assert shown in html and hidden not in html.partition("</dl>")[0]
    assert f"Noise of the machine: ± {100 * off:.0f} % in the run, ± 2 % in the baseline." in html
    assert html.index("Mean accepted tokens") < html.index("Decode speed-up")


def test_the_longest_outcome_fits_the_room_kept_for_it(timed) -> None:
    """One line (``play.css``), the rest folded: what is below must not move when a run ends."""
    timed(0.44)
    drafters = ("translation", "summary", "general")
    started = make_generation(drafters=drafters, prior=Prior((0.91, 0.82, 0.73), (0.1, 0.1, 0.1), 120))
    html = tiles(
        started,
        [Difference(1, 0.0312, True)],
        baseline=Baseline("answer", 128, 1 / 1234, 0.0, 0.22),
        regret_rounds=11,
        best_drafter="translation",
        drafter_rounds={"translation": 21, "general": 33},
    )
    outcome, note = unescape(html).partition("<summary>")[2].split("</summary>")
    for part in ("Slower", "Noise of the machine", "near-ties", "It started from 120 earlier runs", "regret +11"):
        assert part in note
    assert "calls of the target instead of 6; the text is the same" in outcome and len(outcome) < 90


@pytest.mark.parametrize(
    ("rate", "said"), [(1, " % in guessing."), (1000, "Slower all the same: drafts take time too")]
)
def test_the_outcome_says_where_the_time_went_or_that_drafts_did_not_pay(timed, rate: int, said: str) -> None:
    timed(0.01)
    html = tiles(make_generation(status="stopped"), [], baseline=Baseline("answer", 6, 1 / rate, 0.0, 0.01))
    assert "the text is the same" in html and said in html and ("Slower" in html) == (rate == 1000)


def test_an_answer_that_repeats_itself_is_told_from_one_that_makes_sense() -> None:
    for status, told in (("completed", True), ("stopped", False)):
        ended = make_generation(text="tr " * 99, status=status)
        assert ("repeating itself" in view.status_html(job(ended))) == told


def test_a_pool_that_says_nothing_about_itself_has_no_lone_title():
    assert "<b>Mine.</b> Three drafters." in view.about_pool_html(
        SimpleNamespace(title="Mine", description="Three drafters.")
    )
    assert not view.about_pool_html(SimpleNamespace(title="Mine", description=""))
