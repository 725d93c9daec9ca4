"""A prompt typed in: what the loaded pool would begin it with, by what it has learnt."""

from __future__ import annotations

from functools import partial

import gradio as gr
from markupsafe import Markup

from drafters.errors import UserError
from multidraft.service.workbench import Workbench
from multidraft.ui.widgets.events import HIDDEN
from multidraft.ui.widgets.learnt import beginning_html
from multidraft.ui.widgets.markup import problem_html


def build(workbench: Workbench) -> None:
    """Lay out the field, its button and the answer."""
    with gr.Row(elem_classes="md-ask"):
        prompt = gr.Textbox(
            label="Who would draft first for a prompt?",
            placeholder="Type a prompt to see what acceptance the loaded pool expects of each drafter.",
            lines=1,
            max_lines=6,
            scale=1,
            elem_id="beginning-prompt",
        )
        ask = gr.Button("Predict", size="md", scale=0, min_width=110, elem_id="beginning-ask")
    said = gr.HTML("", js_on_load=None, elem_id="beginning")
    gr.on([ask.click, prompt.submit], partial(answer, workbench), prompt, said, **HIDDEN)


def answer(workbench: Workbench, prompt: str) -> Markup:
    """What would begin a prompt, or why nothing would."""
    pool = workbench.pool
    try:
        found = workbench.beginning(prompt)
    except UserError as error:
        return problem_html(error)
    return beginning_html(found, pool.name, pool.drafter_names)
