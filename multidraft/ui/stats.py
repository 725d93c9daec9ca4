"""The figures above the output, and the line that says how a run stands."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from multidraft.lossless import Difference
from multidraft.records import Generation
from multidraft.regret import Regret
from multidraft.ui.choices import policy_title
from multidraft.ui.tables import count, number, percent
from multidraft.ui.worker import Baseline, Job
from storage.rows import FEWEST_TOKENS, speedup

_ENDS = {
    "completed": "Completed: as many tokens as you asked for.",
    "stopped": "Completed: the target ended its answer.",
    "context_limit": "Ended: the target's context window is full.",
    "cancelled": "Cancelled.",
}


def message_html(kind: str, text: str, now: str = "") -> str:
    """A status line: ``kind`` is ``idle``, ``busy``, ``done``, ``cancelled`` or ``error``.

    Args:
        text: screen readers say it whenever it changes.
        now: what follows it and changes all the time, e.g. the number of a round; they don't say that unasked.
    """
    return _line_html(kind, text, now)


def progress_html(text: str, done: float, total: float, label: str, now: str = "") -> str:
    """A status line with a bar; ``label`` tells screen readers what the bar is about. See :func:`message_html`."""
    bar = f'<progress max="{total:g}" value="{done:g}" aria-label="{escape(label)}"></progress>'
    return _line_html("busy", text, now, bar)


def _line_html(kind: str, text: str, now: str, bar: str = "") -> str:
    """All lines have the same elements, for Gradio changes only what differs from the line before: so the live region
    stays where it is, and is silent while only ``now`` or the bar change."""
    role = "alert" if kind == "error" else "status"
    said = f'<span role="{role}">{escape(text)}</span>'
    return f'<p class="md-status md-{kind}">{said}<span>{escape(now)}</span>{bar}</p>'


def status_html(job: Job, kept: bool = True) -> str:
    """How a run stands, or how it ended, and under which policy.

    Args:
        kept: whether the history can be written.
    """
    generation, policy = job.generation, policy_title(job.request.policy)
    if job.phase == "waiting":
        runs = count(job.ahead, "run")
        return message_html("busy", f"Waiting for the device: {runs} ahead of yours. Stop leaves the queue.")
    if job.phase == "measuring":
        return message_html("busy", "Measuring plain decoding of this prompt, to compare with …")
    if job.phase == "decoding":
        return message_html("busy", f"Decoding under {policy}", f", round {len(generation.rounds) + 1} …")
    counts = f"{count(len(generation.token_ids), 'token')} in {count(len(generation.rounds), 'round')}"
    if job.phase == "scoring" and generation.status != "error":
        return message_html("busy", _scoring(job, counts))
    if generation.status == "error":
        return message_html("error", f"The run failed: {generation.error}. Please try again or report it.")
    kind = "cancelled" if generation.status == "cancelled" else "done"
    left_out = " Regret not computed: stopped." if job.unscored else ""
    unsaved = "" if kept else " Not in the history: the tab Dashboard says why."
    return message_html(kind, f"{_ENDS[generation.status]} {counts} under {policy}.{left_out}{unsaved}")


def _scoring(job: Job, counts: str) -> str:
    """What is done between the last round and the end; as short as how it ends, or all below it would move."""
    if job.generation.status == "cancelled":
        return f"Stopped: {counts}. Now they are checked …"
    if job.cancelled:
        return f"Decoded: {counts}. Stopping after the drafter at hand …"
    if not job.request.params.greedy:
        return f"Decoded: {counts}."
    return f"Decoded: {counts}. Now checked{', and the best drafter in hindsight found' if job.compared else ''} …"


def tiles_html(
    generation: Generation | None = None,
    baseline: Baseline | None = None,
    differences: Sequence[Difference] | None = None,
    regret: Regret | None = None,
) -> str:
    """Speed, speed-up, mean accepted tokens and acceptance (dashes before the first round), and how they came about."""
    g = generation if generation and generation.rounds else None
    rate = g.tokens_per_second if g else None
    faster = speedup(len(g.token_ids), rate, baseline.tokens_per_second) if g and baseline else None
    short = g is not None and g.status != "running" and len(g.token_ids) < FEWEST_TOKENS
    tiles = [
        ("Speed", number(rate, 0 if rate and rate >= 100 else 1), "tokens/s", "Emitted tokens per second of decoding"),
        (
            "Speed-up",
            number(faster, 2, "×"),
            "too short to say" if short else "over plain decoding",
            f"{_how(baseline)}. Answers of fewer than {FEWEST_TOKENS} tokens have none",
        ),
        (
            "Tokens a round",
            number(g.mean_accepted_tokens if g else None, 2),
            "plain decoding: 1",
            "MAT, mean accepted tokens: emitted tokens per round, the target's own token counted",
        ),
        (
            "Accepted",
            percent(g.acceptance_rate if g and any(r.drafted for r in g.rounds) else None),
            "of drafted tokens",
            "Acceptance: accepted tokens ÷ drafted tokens",
        ),
    ]
    cells = "".join(
        f'<div class="md-tile" title="{escape(tip)}"><dt>{name}</dt><dd>{value}</dd>'
        f'<dd class="md-unit">{unit}</dd></div>'
        for name, value, unit, tip in tiles
    )
    return f'<dl class="md-tiles">{cells}</dl><p class="md-note">{escape(_note(g, baseline, differences, regret))}</p>'


def _note(
    generation: Generation | None,
    baseline: Baseline | None,
    differences: Sequence[Difference] | None,
    regret: Regret | None,
) -> str:
    if baseline is None:
        return f"{_how(None)}."
    sentences = [
        f"Plain decoding: {baseline.tokens_per_second:.1f} tokens/s ({count(baseline.tokens, 'token')} of the same "
        "prompt just before the run, median)."
    ]
    short = generation is not None and len(generation.token_ids) < FEWEST_TOKENS
    if generation and not short and all(r.arm is None for r in generation.rounds):
        sentences.append(
            "This run drafts nothing: it is plain decoding as well, so its speed-up only tells how far two "
            "measurements of the same thing lie apart."
        )
    if generation and differences is not None:
        sentences.append(_checked(generation, differences))
    if generation and regret:
        name = generation.drafters[regret.best_arm]
        sentences.append(
            f"In hindsight {name} is the best single drafter and needs {count(regret.best_rounds, 'round')}; this run "
            f"took {len(generation.rounds)} (regret {regret.rounds:+d})."
        )
    return " ".join(sentences)


def _checked(generation: Generation, differences: Sequence[Difference]) -> str:
    tokens = count(len(generation.token_ids), "token")
    if not differences:
        return f"Checked: {tokens}, each the target's own greedy choice."
    faults = [d for d in differences if not d.rounding]
    if not faults:
        return (
            f"Checked: {tokens}, each the target's own greedy choice, but {len(differences)} decided by rounding "
            f"between all but equally probable ones (logits at most {max(d.gap for d in differences):.2g} apart)."
        )
    return (
        f"Token {faults[0].position + 1} is not the target's greedy choice (its logit lies {faults[0].gap:.2g} below "
        "the largest): that should never happen. Please report it with this prompt."
    )


def _how(baseline: Baseline | None) -> str:
    how = "Speed-up compares with the same prompt, parameters and seed decoded without drafters just before the run"
    return f"{how} ({count(baseline.tokens, 'token')}, median time of a token)" if baseline else how
