"""*Pool*: what is loaded, and how to read the page."""

from __future__ import annotations

from html import escape

import gradio as gr

from drafters.pool import Pool
from multidraft.ui.tables import table_html
from multidraft.ui.tokens import arm_class
from multidraft.ui.worker import Workbench

OTHER_POOLS = (
    "<p>Real pools come by card, a short YAML file: <code>python -m multidraft demo --pool CARD</code>, "
    "or the environment variable <code>MULTIDRAFT_POOL</code>.</p>"
)

HOW_IT_WORKS = """
## How it works

A large **target** model writes one token at a time, and each token costs a whole pass through it. A small **drafter**
can guess several tokens ahead at little cost; the target then checks all of them in a single pass, keeps those that
agree with what it would have written, and adds one token of its own. That is a **round**. The output is exactly the
target's; only the speed changes.

One drafter is rarely good at everything. Here several are at hand, and a **policy** learns while the text is being
written which of them to trust. *Play* shows who wrote what; *Race* sets policies side by side on one prompt; *Batch*
measures them on many; *Dashboard* keeps the history.

| Term | Meaning |
|---|---|
| MAT | mean accepted tokens: emitted tokens per round, the target's own counted; plain decoding has 1 |
| accepted | accepted tokens ÷ drafted tokens |
| speed-up | tokens per second ÷ those of plain decoding of the same prompt on the same machine |
| regret | rounds more than the best single drafter in hindsight would have needed; negative where switching won |
"""

KINDS = {
    "lm": "small language model",
    "pld": "prompt lookup: copies what followed earlier in the text",
    "suffix": "suffix automaton: what most often followed the same words in the text",
    "rest": "datastore: what most often followed the same words in past text",
}


def build(workbench: Workbench) -> None:
    """Lay out the tab inside the surrounding ``gr.Tab``."""
    gr.HTML(pool_html(workbench.pool, workbench.hardware, workbench.version), js_on_load=None, elem_id="pool")
    gr.Markdown(HOW_IT_WORKS, elem_id="how")


def pool_html(pool: Pool, hardware: str, version: str) -> str:
    """Target, drafters, device and number type."""
    target = sum(p.numel() for p in pool.target.model.parameters())
    facts = [
        ("Target", f"{_millions(target)} parameters, context window of {pool.target.window:,} tokens"),
        ("Device", f"{hardware} ({pool.device}), {pool.dtype}"),
        ("Card", f"{pool.name} ({pool.card_hash[:8]})"),
        ("Version", version),
    ]
    lines = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    rows = (
        [
            f'<span class="md-token {arm_class(arm)}">{escape(drafter.name)}</span>',
            escape(KINDS.get(drafter.kind, drafter.kind)),
            _millions(drafter.parameter_count) if drafter.parameter_count else "none",
        ]
        for arm, drafter in enumerate(pool.drafters)
    )
    return (
        f'<h2>{escape(pool.title)}</h2><p>{escape(pool.description)}</p>{OTHER_POOLS}<dl class="md-facts">{lines}</dl>'
        + table_html(("Drafter", "Kind", "Parameters"), rows, figures=1)
    )


def _millions(count: int) -> str:
    if count >= 10**9:
        return f"{count / 10**9:.1f} billion"
    return f"{count / 10**6:.1f} million" if count >= 10**6 else f"{count:,}"
