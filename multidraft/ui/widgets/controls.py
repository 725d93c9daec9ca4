"""What *Play* and *Race* have in common: examples of prompts, and the settings of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gradio as gr
from gradio.events import Dependency

from drafters.errors import UserError
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.bench.comparison import NAMES
from multidraft.engine.arguments import policy_for
from multidraft.service.inputs import make_params, whole_number
from multidraft.service.workbench import Workbench
from multidraft.ui.widgets.events import PRIVATE, QUICK, Updates
from multidraft.ui.widgets.markup import count, message_html
from multidraft.ui.widgets.policy_fields import offered, with_specs

PREVIEW = 160
"""Characters of an example prompt that its button holds; the style sheet cuts them to its width."""

MOST_EXAMPLES = 4
"""Prompts of a task that have a button."""

SEED = "The same seed gives the same run, unless the policy depends on measured time, as rate-hedge does"

SETTINGS = ("max_new_tokens", "temperature", "top_p", "top_k", "draft_length", "seed")
"""The settings of a run, as addresses call them; ``address.js`` has them as well."""

LONGEST_LINK = 6000
"""Characters of a link's query with them: browsers, proxies and chat programs cut longer ones."""

HOTTEST, LARGEST_TOP_K = 2.0, 200
"""The most that the fields of temperature and top-k take."""

MOST_NEW_TOKENS = 1024
"""The most that the field takes, whatever the target's window."""

LONGEST_DRAFT = 16
"""Tokens that a draft may have at most, where the pool's own length is not longer."""


class PromptTab:
    """A tab that asks for a prompt, on what pool there is; the ids of its fields begin with ``prefix``."""

    prefix = ""
    opening: str | None = None
    """Task whose first example stands in the prompt's field at the first visit, where the pool has it; else its first
    example of all does."""

    def __init__(self, workbench: Workbench):
        self.workbench = workbench

    def build_prompt(self) -> None:
        """Lay out the field of the prompt and, below it, what may be asked."""
        examples = self.workbench.pool.examples
        first = next((prompt for task, prompt in examples if task == self.opening), examples[0][1] if examples else "")
        self.prompt = gr.Textbox(
            first,
            label="Prompt",
            lines=6,  # a field that grew with the text it begins with would move all below it
            max_lines=6,
            placeholder="Type a task, or take an example below.",
            elem_id=f"{self.prefix}prompt",
        )
        self.fit = gr.HTML(self.fit_html(first), js_on_load=None, elem_id=f"{self.prefix}fit", elem_classes="md-fit")
        self.prompt.change(self.fit_html, self.prompt, self.fit, **QUICK, trigger_mode="always_last")

    def keep_prompt(self, restored: Dependency) -> None:
        """Once ``restored``, have the page put back what was typed before it was loaded again (``page.js``)."""
        script = f"(shown) => typed('{self.prefix}prompt', shown)"
        restored.then(None, self.prompt, self.prompt, js=script, **PRIVATE)

    def build_examples(self) -> None:
        """Lay out buttons with the pool's example prompts by task, which fill the prompt's field, as a task does with
        its first one; they have the same room whichever are shown."""
        self.task = gr.Radio(
            **self._tasks(), label="Examples", elem_id=f"{self.prefix}example-task", elem_classes="md-pills"
        )
        with gr.Column(elem_classes="md-examples"):
            self.offers = [
                gr.Button(**button, size="sm", elem_classes="md-example", elem_id=f"{self.prefix}example-{i}")
                for i, button in enumerate(self._offered(None))
            ]
        self.examples = [self.task, *self.offers]
        self.task.change(self._show, self.task, self.offers, **QUICK)
        self.task.input(partial(self._prompt, 0), self.task, self.prompt, **QUICK)
        for i, button in enumerate(self.offers):
            button.click(partial(self._prompt, i), self.task, self.prompt, **QUICK)

    def _show(self, task: str | None) -> Updates:
        return {b: gr.Button(**button) for b, button in zip(self.offers, self._offered(task), strict=True)}

    def _tasks(self) -> dict[str, Any]:
        names = list(dict(self.workbench.pool.examples))
        return {"choices": names, "value": None, "visible": bool(names)}

    def _prompts(self, task: str | None) -> list[str]:
        """Those of a task; as long as none is chosen, the first of each."""
        examples = self.workbench.pool.examples
        if task is None:
            return list(dict(reversed(examples)).values())[::-1]
        return [prompt for known, prompt in examples if known == task]

    def _offered(self, task: str | None) -> list[dict[str, Any]]:
        texts = [" ".join(prompt.split())[:PREVIEW] for prompt in self._prompts(task)]
        return [{"value": text, "visible": bool(text)} for text in (texts + [""] * MOST_EXAMPLES)[:MOST_EXAMPLES]]

    def _prompt(self, index: int, task: str | None) -> Any:
        """An example; nothing on a page that still shows those of a pool that was there before."""
        prompts = self._prompts(task)
        return prompts[index] if index < len(prompts) else gr.skip()

    def build_settings(self, title: str = "Settings") -> None:
        """Lay out the settings of a run, the fields of ``SETTINGS``, which :func:`read_settings` reads."""
        length_limits, draft_limits = limits(self.workbench.pool, self.workbench.limits.new_tokens)
        with gr.Accordion(title, open=False, elem_id=f"{self.prefix}settings"):
            length = gr.Slider(
                1, **length_limits, step=1, label="Max new tokens", elem_id=f"{self.prefix}max-new-tokens"
            )
            about_draft = "Tokens that a drafter proposes per round, at most"
            draft = gr.Slider(1, **draft_limits, step=1, label="Draft length", info=about_draft)
            heat = gr.Slider(
                0,
                HOTTEST,
                0,
                step=0.05,
                label="Temperature",
                info="0 is greedy: always the most probable token",
                elem_id=f"{self.prefix}temperature",
            )
            with gr.Row():
                top_p = gr.Slider(0.05, 1, 1, step=0.01, label="Top-p", info="1 keeps all tokens", min_width=140)
                top_k = gr.Slider(0, LARGEST_TOP_K, 0, step=1, label="Top-k", info="0 keeps all tokens", min_width=140)
            seed = gr.Number(0, label="Seed", info=SEED)
        self.settings: list[gr.components.Component] = [length, heat, top_p, top_k, draft, seed]

    @property
    def drafters(self) -> list[str]:
        """The names of the present pool's drafters."""
        return self.workbench.pool.drafter_names

    @property
    def policies(self) -> list[tuple[str, str]]:
        """Titles and specs of the policies that the present pool can run."""
        return with_specs(offered(self.workbench.pool))

    def wrong_policy(self, spec: str | None) -> str | None:
        """Why the present pool cannot run a policy, if it cannot."""
        try:
            policy_for(self.workbench.pool, spec or "")
        except UserError as error:
            return str(error)
        return None

    def task_of(self, prompt: str) -> str | None:
        """The task of an example of the present pool."""
        return next((task for task, example in self.workbench.pool.examples if example == prompt), None)

    def fit_html(self, prompt: str) -> str:
        """What may be asked, where the present pool's target knows certain tasks only; a warning, as short, where the
        prompt is of none of them."""
        pool = self.workbench.pool
        if pool.router is None or not pool.card.only_tasks:
            return ""
        if not prompt.strip() or pool.fits(prompt):
            tasks = count(len(pool.router.drafters), "kind")
            return message_html("idle", f"This model knows {tasks} of task, those of the examples, no others.")
        return message_html("odd", "Unlike the prompts of its training: the answer may be nonsense.")

    def follow_pool(self, prompt: str, max_new_tokens: float | None) -> Updates:
        """Examples and settings for the present pool; what was chosen stays if it fits."""
        length, draft = limits(self.workbench.pool, self.workbench.limits.new_tokens, max_new_tokens)
        fields = {self.settings[0]: gr.Slider(**length), self.settings[4]: gr.Slider(**draft)}
        return {self.fit: self.fit_html(prompt), self.task: gr.Radio(**self._tasks()), **self._show(None), **fields}


def limits(pool: Pool, most: int | None, max_new_tokens: float | None = 256) -> tuple[dict[str, Any], dict[str, Any]]:
    """Maximum and value of the fields for max new tokens, as many as were chosen if they fit, and for the draft length,
    the pool's own; ``most`` is the server's limit of new tokens."""
    longest = min(MOST_NEW_TOKENS, pool.target.window - 1, most or MOST_NEW_TOKENS)
    return (
        {"maximum": longest, "value": min(max_new_tokens or 256, longest)},
        {"maximum": max(LONGEST_DRAFT, pool.draft_length), "value": pool.draft_length},
    )


def check_fields(settings: Mapping[str, float | None], pool: Pool, most: int | None) -> None:
    """Check parameters that do not come from the fields themselves; ``most`` is the server's limit of new tokens.

    Raises:
        UserError: one is more than its field takes.
    """
    length, draft = limits(pool, most)
    of_pool = {"max_new_tokens": length["maximum"], "draft_length": draft["maximum"]}
    for name, largest in {**of_pool, "temperature": HOTTEST, "top_k": LARGEST_TOP_K}.items():
        if (value := settings.get(name) or 0) > largest:
            raise UserError(f"{NAMES.get(name, name)} must be at most {largest:,.12g} here, got {value:,.12g}")


def read_settings(values: Sequence[float | None]) -> tuple[SamplingParams, int]:
    """Parameters and seed from the values of ``SETTINGS``, after which others may stand.

    Raises:
        UserError: a field is empty or out of range; the message names it.
    """
    *params, seed = values[: len(SETTINGS)]
    return make_params(*params), whole_number("seed", seed)


def agreed(values: Sequence[Any]) -> bool:
    """Whether runs may be learnt from: the value after those of ``SETTINGS``, where there is one."""
    return all(value is not False for value in values[len(SETTINGS) :])
