"""What *Play* and *Race* have in common: examples of prompts, the settings of a run, and its end."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from drafters.pool import Pool
from multidraft.ui.choices import policy_choices, with_specs
from multidraft.ui.events import QUICK
from multidraft.ui.stops import Stops
from multidraft.ui.worker import Workbench

PREVIEW = 160
"""Characters of an example prompt that its button holds; the style sheet cuts them to its width."""

MOST_EXAMPLES = 4
"""Prompts of a task that have a button."""

SEED = "The same seed draws the same again, unless the policy looks at the clock, as rate-hedge does"
"""What the seed's field says."""

LONGEST_DRAFT = 16
"""Tokens that a draft may have at most, where the pool's own length is not longer."""


class Examples:
    """The pool's example prompts by task; they follow the workbench's pool.

    Attributes:
        components: the tasks, and a button for each prompt of one; :meth:`updates` brings them up to date.
    """

    def __init__(self, workbench: Workbench):
        self.workbench = workbench
        self.components: list[Any] = []

    @property
    def tasks(self) -> dict[str, str]:
        """The task of each prompt."""
        return {prompt: task for task, prompt in self.workbench.pool.examples}

    @property
    def prompts(self) -> dict[str, list[str]]:
        """The prompts of each task."""
        found: dict[str, list[str]] = {}
        for task, prompt in self.workbench.pool.examples:
            found.setdefault(task, []).append(prompt)
        return found

    def build(self, prompt: gr.Textbox, prefix: str = "") -> None:
        """Buttons that fill ``prompt``; ``prefix`` keeps the ids of two tabs apart."""
        task, *buttons = self.updates()
        self.components = [
            gr.Radio(**task, label="Examples", elem_id=f"{prefix}example-task", elem_classes="md-pills"),
            *(
                gr.Button(**button, size="sm", elem_classes="md-example", elem_id=f"{prefix}example-{i}")
                for i, button in enumerate(buttons)
            ),
        ]
        self.components[0].change(
            lambda name: [gr.Button(**self._button(name, i)) for i in range(MOST_EXAMPLES)],
            self.components[0],
            self.components[1:],
            **QUICK,
        )
        for i, button in enumerate(self.components[1:]):
            button.click(
                partial(self._prompt, i),
                self.components[0],
                prompt,
                **QUICK,
            )

    def updates(self) -> list[dict[str, Any]]:
        """The settings of :attr:`components` for the present pool, the first task's prompts shown."""
        names = list(self.prompts)
        first = names[0] if names else None
        task = {"choices": names, "value": first, "visible": bool(names)}
        return [task, *(self._button(first, i) for i in range(MOST_EXAMPLES))]

    def _prompt(self, index: int, task: str | None) -> Any:
        """An example; nothing on a page that still shows those of a pool that was there before."""
        prompts = self.prompts.get(task or "", [])
        return prompts[index] if index < len(prompts) else gr.skip()

    def _button(self, task: str | None, index: int) -> dict[str, Any]:
        prompts = self.prompts.get(task or "", [])
        if index >= len(prompts):
            return {"value": "", "visible": False}
        text = " ".join(prompts[index].split())
        return {"value": text[:PREVIEW], "visible": True}


class PromptTab:
    """A tab that asks for a prompt, on what pool there is."""

    def __init__(self, workbench: Workbench):
        self.workbench = workbench
        self.examples = Examples(workbench)

    @property
    def drafters(self) -> list[str]:
        """The names of the present pool's drafters."""
        return [drafter.name for drafter in self.workbench.pool.drafters]

    @property
    def policies(self) -> list[tuple[str, str]]:
        """Titles and specs of the policies that the present pool can run."""
        return with_specs(policy_choices(self.drafters, self.workbench.pool.router is not None))


class RunTab(PromptTab):
    """Likewise, whose visitors each have at most one run under way."""

    def __init__(self, workbench: Workbench):
        super().__init__(workbench)
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
        placeholder="Type a task, or take an example below. Shift+Enter runs it.",
        elem_id=f"{prefix}prompt",
    )


def settings(pool: Pool, prefix: str = "") -> list[gr.components.Component]:
    """Max new tokens, temperature, top-p, top-k, draft length, seed, in the order of ``choices.make_params``."""
    length_limits, draft_limits = limits(pool)
    length = gr.Slider(1, **length_limits, step=1, label="Max new tokens", elem_id=f"{prefix}max-new-tokens")
    draft = gr.Slider(
        1,
        **draft_limits,
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
    seed = gr.Number(0, label="Seed", info=SEED)
    return [length, heat, top_p, top_k, draft, seed]


def limits(pool: Pool, max_new_tokens: float | None = 256) -> tuple[dict[str, Any], dict[str, Any]]:
    """Maximum and value of the fields for max new tokens, as many as were chosen if they fit, and for the draft length,
    the pool's own."""
    longest = min(1024, pool.target.window - 1)
    return (
        {"maximum": longest, "value": min(max_new_tokens or 256, longest)},
        {"maximum": max(LONGEST_DRAFT, pool.draft_length), "value": pool.draft_length},
    )


def sentence(error: Exception) -> str:
    """An error's message as a sentence. Names that it begins with, of files and parameters, stay as they are."""
    text = str(error)
    first, *_ = text.split(maxsplit=1) or [""]
    if first.isalpha() or first.replace("-", "").isalpha():
        text = text[:1].upper() + text[1:]
    return text + ("" if text.endswith(".") else ".")
