"""What *Play* and *Race* have in common: examples of prompts, the settings of a run, and its end."""

from __future__ import annotations

from typing import Any

import gradio as gr

from drafters.pool import Pool
from multidraft.ui.events import QUICK
from multidraft.ui.worker import Stops, Workbench

PREVIEW = 160
"""Characters of an example prompt that its button holds; the style sheet cuts them to its width."""


LONGEST_DRAFT = 16
"""Tokens that a draft may have at most, where the pool's own length is not longer."""


class Examples:
    """The pool's example prompts by task.

    Attributes:
        tasks: the task of each prompt.
    """

    def __init__(self, pool: Pool):
        self.prompts: dict[str, list[str]] = {}
        for task, prompt in pool.examples:
            self.prompts.setdefault(task, []).append(prompt)
        self.tasks = {prompt: task for task, prompt in pool.examples}

    def build(self, prompt: gr.Textbox, prefix: str = "") -> None:
        """Buttons that fill ``prompt``; ``prefix`` keeps the ids of two tabs apart."""
        if not self.prompts:
            return
        names = list(self.prompts)
        task = gr.Radio(
            names, value=names[0], label="Examples", elem_id=f"{prefix}example-task", elem_classes="md-pills"
        )
        most = max(map(len, self.prompts.values()))
        buttons = [
            gr.Button(**self._button(names[0], i), size="sm", elem_classes="md-example", elem_id=f"{prefix}example-{i}")
            for i in range(most)
        ]
        task.change(
            lambda name: [gr.Button(**self._button(name, i)) for i in range(most)],
            task,
            buttons,
            **QUICK,
        )
        for i, button in enumerate(buttons):
            button.click(
                lambda name, i=i: self.prompts[name][i],
                task,
                prompt,
                **QUICK,
            )

    def _button(self, task: str, index: int) -> dict[str, Any]:
        prompts = self.prompts.get(task, [])
        if index >= len(prompts):
            return {"value": "", "visible": False}
        text = " ".join(prompts[index].split())
        return {"value": text[:PREVIEW], "visible": True}


class RunTab:
    """A tab whose visitors each have at most one run under way."""

    def __init__(self, workbench: Workbench):
        self.workbench = workbench
        self.drafters = [drafter.name for drafter in workbench.pool.drafters]
        self.examples = Examples(workbench.pool)
        self.stops = Stops()

    def stop(self, request: gr.Request) -> None:
        """End what the visitor has under way."""
        self.stops.stop(request.session_hash)


def prompt_box(prefix: str = "") -> gr.Textbox:
    """Where the prompt is typed."""
    return gr.Textbox(
        "",
        label="Prompt",
        lines=4,
        max_lines=12,
        placeholder="Type a task, or take an example below.",
        elem_id=f"{prefix}prompt",
    )


def settings(pool: Pool, prefix: str = "") -> list[gr.components.Component]:
    """Max new tokens, temperature, top-p, top-k, draft length, seed, in the order of ``choices.make_params``."""
    longest = min(1024, pool.target.window - 1)
    length = gr.Slider(1, longest, min(256, longest), step=1, label="Max new tokens", elem_id=f"{prefix}max-new-tokens")
    draft = gr.Slider(
        1,
        max(LONGEST_DRAFT, pool.draft_length),
        pool.draft_length,
        step=1,
        label="Draft length",
        info="Most tokens a drafter proposes in a round",
    )
    heat = gr.Slider(
        0,
        2,
        0,
        step=0.05,
        label="Temperature",
        info="0 is greedy: always the most probable token",
        elem_id=f"{prefix}temperature",
    )
    with gr.Row():
        top_p = gr.Slider(0.05, 1, 1, step=0.01, label="Top-p", info="1 keeps all tokens", min_width=140)
        top_k = gr.Slider(0, 200, 0, step=1, label="Top-k", info="0 keeps all tokens", min_width=140)
    seed = gr.Number(0, label="Seed", precision=0, info="Same seed, same tokens and same choices")
    return [length, heat, top_p, top_k, draft, seed]


def sentence(error: Exception) -> str:
    """An error's message as a sentence."""
    text = str(error)
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
