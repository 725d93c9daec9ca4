"""What *Play* shows: how the run stands, the figures above the output, and the conversation."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from multidraft.bench.action import listed
from multidraft.bench.measure import Measurement
from multidraft.bench.measured_verdict import loops
from multidraft.engine.lossless import Difference
from multidraft.policies.titles import policy_title
from multidraft.service.unfamiliar import LOOPS, UNFAMILIAR
from multidraft.ui.widgets import markup, tokens
from multidraft.ui.widgets.markup import count, macros, message_html, number, percent, place
from storage.figures import FEWEST_TOKENS, SIDES, timed_side
from storage.records import Turn
from storage.run import Baseline, Run

_macros = macros("tabs/play/view.html")
about_pool_html = _macros.about_pool

IDLE = message_html(
    "idle md-ready", "Ready. The output is exactly what the target would write alone; only the speed changes."
)

_SPEEDUP = {"": "over autoregressive", "decoding": "measured at the end", "timing": "being measured …"}
_SPEED = {"": "tokens/s", "decoding": "tokens/s so far", "timing": "tokens/s, timing …"}
"""What stands below a figure, by whether it may still change."""

_ENDS = {
    "completed": "Ended at max tokens.",
    "stopped": "Completed: end of sequence (EOS).",
    "context_limit": "Ended: the target's context window is full.",
    "cancelled": "Stopped.",
}


def status_html(
    job: Measurement,
    ahead: int = 0,
    recorded: bool = True,
    fits: bool = True,
    wait_seconds: float | None = None,
    *,
    ended: bool = True,
) -> Markup:
    """How a run stands, or how it ended, and under which policy.

    Args:
        ahead: how many jobs stand before it in the queue.
        recorded: whether it is in the history, if there is anything to record.
        ended: whether that is known; before, it is not told as ended.
        fits: whether the prompt is of a task that the pool knows.
        wait_seconds: how long it has to wait, if that can be told.
    """
    generation, policy = job.generation, policy_title(job.request.policy)
    phase = "scoring" if job.phase == "done" and not ended else job.phase
    if phase == "waiting":
        return message_html("busy", f"Waiting for the device: {place(ahead, wait_seconds)}. Stop leaves the queue.")
    if phase == "measuring":
        again = "Timing the same rounds again, beside" if job.timed_again else "Measuring"
        return message_html("busy", f"Decoded. {again} autoregressive decoding of this prompt …")
    if phase == "decoding":
        failed = f"{generation.failures} " if generation.benched else ""
        return message_html("busy", f"{failed}Decoding under {policy}", f", round {len(generation.rounds) + 1} …")
    counts = f"{count(len(generation.token_ids), 'token')} in {count(len(generation.rounds), 'round')}"
    if phase == "scoring" and generation.status != "error":
        return message_html("busy", _scoring(job, counts))
    if generation.status == "error":
        return message_html("error", f"The run failed: {generation.error}. Please try again or report it.")
    odd = "" if fits else f" {UNFAMILIAR}"
    if fits and generation.status == "completed" and loops(generation.text):
        odd = f" {LOOPS}"
    if generation.token_ids and not generation.text.strip():
        odd += " Its tokens decode to no visible text."
    kind = "cancelled" if generation.status == "cancelled" else "done md-odd" if odd else "done"
    left_out = " Regret not computed: stopped." if job.unscored else ""
    failed = f" {generation.failures}" if generation.benched else ""
    unsaved = "" if recorded else " Not in the history yet: see the Dashboard tab."
    limit = f" {markup.sentence(generation.error)}" if generation.status == "cancelled" and generation.error else ""
    said = f"{failed}{left_out}{unsaved}{odd}"
    return message_html(kind, f"{_ENDS[generation.status]}{limit} {counts} under {policy}.{said}")


def _scoring(job: Measurement, counts: str) -> str:
    """What is done between the last round and the end; as short as how it ends, or all below it would move."""
    if job.generation.status == "cancelled":
        return f"Stopped: {counts}. Checking them …"
    if job.cancelled:
        return f"Decoded: {counts}. Stopping after the current drafter …"
    if not job.request.params.greedy:
        return f"Decoded: {counts}."
    return f"Decoded: {counts}. Checking them{' and finding the best drafter in hindsight' if job.compared else ''} …"


def tiles_html(
    run: Run | None = None, differences: Sequence[Difference] | None = None, *, ended: bool = True
) -> Markup:
    """Mean accepted tokens and acceptance rate, which no clock changes, then speed-up and speed (dashes before the
    first round), and what is known of them. What may still change looks like it.

    Args:
        differences: where a greedy output differs from the target's own choice, if that was examined.
        ended: whether nothing is timed any more.
    """
    told = run.baseline is not None if run else False
    state = "" if ended or told else "decoding" if run and run.generation.status == "running" else "timing"
    g = run.generation if run and run.generation.rounds else None
    rate = g.tokens_per_second if g else None
    faster, whole = (run.speedup, run.request_speedup) if run and g else (None, None)
    off = run.speedup_uncertainty if run and faster else None
    short = g is not None and g.status != "running" and len(g.token_ids) < FEWEST_TOKENS
    shown = number(faster, 2, "×")
    around = f"± {faster * off:.2f}; " if faster and off else ""
    request = f"{around}request {number(whole, 2, '×')}" if whole else _SPEEDUP[state]
    if faster and off and markup.too_noisy(off):
        # Short, in words of known width: the tile must not grow when the run ends.
        side = timed_side(faster, off)
        shown, request = (SIDES[side], "noisy: ") if side else (markup.UNKNOWN, "cannot tell: ")
        request += markup.speedup_text(faster, off)
    drafted = g is not None and any(r.drafted for r in g.rounds)
    saved = f"{len(g.token_ids) - len(g.rounds):,} of {len(g.token_ids):,} calls saved" if g else "autoregressive: 1"
    tiles = [
        (
            "Mean accepted tokens",
            number(g.mean_accepted_tokens if g else None, 2),
            saved,
            f"{markup.MAT} (MAT). Each round is one call of the target; autoregressive decoding has one per token",
        ),
        (
            "Acceptance rate",
            percent(g.acceptance_rate if g and drafted else None),
            "of drafted tokens",
            "Accepted tokens ÷ drafted tokens",
        ),
        (
            "Decode speed-up",
            shown,
            "too short to say" if short else request,
            f"{_how(run)}: of decoding, and of the whole request, prefill and routing included. ± is the 95 % "
            "interval, by how much the timings of the rounds and of the baseline varied. On a CPU a short answer is "
            "timed once more, round for round, since the page that shows it may slow it down. Answers of fewer than "
            f"{FEWEST_TOKENS} tokens have none",
        ),
        (
            "Speed",
            number(rate, 0 if rate and rate >= 100 else 1),
            _SPEED[state],
            "Emitted tokens per second of decoding",
        ),
    ]
    figures = markup.tiles_html(tiles, f"md-{state}" if state else "")
    if run is None or run.baseline is None:
        return figures
    return figures + markup.folded(
        _outcome(run, differences), markup.note_html(_details(run, run.baseline, differences))
    )


def _outcome(run: Run, differences: Sequence[Difference] | None) -> str:
    """What drafting was good for, in plain words and one line."""
    g = run.generation
    if all(r.arm is None for r in g.rounds):
        return "Nothing was drafted: this is autoregressive decoding itself."
    said = f"{count(len(g.rounds), 'call')} of the target instead of {len(g.token_ids):,}"
    if differences is None:
        return f"{said}."
    if any(not d.rounding for d in differences):
        return f"{said}. {_checked(g.token_ids, differences)}"
    return f"{said}; the text is the same as without drafters."


def _why(run: Run) -> str:
    """Why the speed-up is what it is."""
    if not run.speedup or not run.speedup_uncertainty:
        return ""
    if all(r.arm is None for r in run.generation.rounds):
        return "Its speed-up only shows how far two measurements of the same thing differ."
    return {
        1: _where_time_goes(run),
        0: "The machine was too noisy to tell whether it was faster as well.",
        -1: "Slower all the same: drafts take time too, and too few tokens were accepted.",
    }[timed_side(run.speedup, run.speedup_uncertainty)]


def _where_time_goes(run: Run) -> str:
    """Why the speed-up is less than the calls saved promise."""
    g = run.generation
    verify, draft = (sum(getattr(r, f"{phase}_seconds") for r in g.rounds) / g.seconds for phase in ("verify", "draft"))
    return f"Time: {percent(verify)} in these calls (checking guesses makes them longer), {percent(draft)} in guessing."


def _details(run: Run, baseline: Baseline, differences: Sequence[Difference] | None) -> str:
    g, scores = run.generation, run.scores
    sentences = [
        _why(run),
        f"Autoregressive decoding just after it: {baseline.tokens_per_second:.1f} tokens/s "
        f"({count(baseline.tokens, 'token')}, {_mean(baseline)} time per token).",
    ]
    if run.speedup and run.speedup_uncertainty:
        sentences.append(_noise(g.uncertainty, baseline.uncertainty, run.speedup_uncertainty))
    if g.rounds and differences is not None:
        sentences.append(_checked(g.token_ids, differences))
    if g.prior:
        best = sorted(zip(g.prior.acceptance, g.drafters, strict=False), reverse=True)[:3]
        chances = listed([f"{percent(chance)} for {name}" for chance, name in best])
        sentences.append(
            f"It started from {count(g.prior.lessons, 'earlier run')}, which promise, at each drafter's best, "
            f"acceptance rates of {chances}."
        )
    if scores.best_drafter and scores.drafter_rounds and scores.regret_rounds is not None:
        needed = scores.drafter_rounds[scores.best_drafter]
        sentences.append(
            f"The best single drafter, {scores.best_drafter}, needs {count(needed, 'round')}; this run took "
            f"{len(g.rounds)} (regret {scores.regret_rounds:+.0f})."
        )
    return " ".join(filter(None, sentences))


def _noise(of_run: float | None, of_baseline: float | None, off: float) -> str:
    """How noisy the machine was, and what to do where that leaves no speed-up."""
    known = [(share, of) for share, of in ((of_run, "run"), (of_baseline, "baseline")) if share is not None]
    noise = f"Noise of the machine: {', '.join(f'± {percent(share)} in the {of}' for share, of in known)}."
    if not markup.too_noisy(off):
        return noise
    return f"{noise} Too much for an exact figure: run it again when the machine is idle."


def _checked(token_ids: Sequence[int], differences: Sequence[Difference]) -> str:
    tokens = count(len(token_ids), "token")
    if not differences:
        return f"Verified: {tokens}, each the target's own greedy choice, whether or not the answer is right."
    faults = [d for d in differences if not d.rounding]
    if not faults:
        return (
            f"Verified: {tokens}, each the target's own greedy choice, {len(differences)} decided by rounding between "
            f"near-ties (logits at most {max(d.gap for d in differences):.2g} apart)."
        )
    return (
        f"Token {faults[0].position + 1} is not the target's greedy choice (its logit lies {faults[0].gap:.2g} below "
        "the largest): this should never happen. Please report it with this prompt."
    )


def _how(run: Run | None) -> str:
    how = "Speed-up compares with autoregressive decoding of the same prompt, parameters and seed just after the run"
    if run is None or run.baseline is None:
        return how
    return f"{how} ({count(run.baseline.tokens, 'token')}, {_mean(run.baseline)} time per token)"


def _mean(baseline: Baseline) -> str:
    """Which mean of the time per token it tells."""
    return "mean" if baseline.kind == "answer" else "median"


def conversation_html(turns: Sequence[Turn], prompt: str = "") -> Markup:
    """What was said so far: ``turns`` are prompts with their answers, ``prompt`` is one that is being answered."""
    lines = [line for asked, answer in turns for line in (("Prompt", asked), ("Answer", answer))]
    if prompt:
        lines.append(("Prompt", prompt))
    return _macros.conversation(lines) if lines else Markup()


def watched_html(plain: Run, run: Run) -> Markup:
    """What there is to see in the recorded runs without drafters and with them, and the legend of those that wrote."""
    g = run.generation
    wrote = [name for name in g.drafters if g.drafter_shares.get(name)]
    return _macros.watched(plain, run, tokens.legend_html(wrote))


def recorded_html(run: Run) -> Markup:
    """What the recorded run is."""
    speedup = markup.speedup_text(run.speedup, run.speedup_uncertainty)
    return _macros.recorded(run, len(run.generation.drafters), speedup)
