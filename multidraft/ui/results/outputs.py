"""What the page of a run or race shows of the outputs, and says of them."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from multidraft.policies.titles import policy_title
from multidraft.ui.widgets import markup, tokens
from multidraft.ui.widgets.lanes import verdict
from storage.records import FINISHED
from storage.run import Run


def outputs_html(runs: Sequence[Run]) -> Markup:
    """The prompt of runs, and what they wrote: the fewest rounds first, and the others folded if all wrote the same."""
    shown = sorted((run.generation for run in runs), key=lambda g: -g.mean_accepted_tokens)
    first, shares = shown[0], shown[0].drafter_shares if len(shown) == 1 else None
    texts = [(policy_title(g.policy), tokens.rounds_html(g.rounds, g.drafters)) for g in shown]
    alike = all(g.token_ids == first.token_ids for g in shown)
    legend = tokens.legend_html(first.drafters, shares)
    return markup.macros("results/page.html").texts(first.prompt, texts, legend, alike)


def sameness(runs: Sequence[Run]) -> str:
    """Whether the outputs of a race are the same, and those of plain decoding; empty where that is not known."""
    ended = [run for run in runs if run.generation.status in FINISHED]
    if len(ended) < 2:
        return ""
    found = verdict(ended)
    return " ".join(filter(None, (found["text"], lossless(ended) if found["kind"] == "same" else "")))


def lossless(runs: Sequence[Run]) -> str:
    """That an output is the target's own, where all of its runs were found to be; else nothing."""
    if not all(run.scores.lossless for run in runs):
        return ""
    if any(run.scores.near_tie_gap for run in runs):
        return "The output is that of plain decoding, near-ties apart, where rounding decided."
    return "The output is identical to plain decoding: the target read it once more and agreed with every token."
