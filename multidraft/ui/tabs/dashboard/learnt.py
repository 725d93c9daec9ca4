"""What a pool has learnt from its traffic: the default policy on recorded texts, with and without it; and what the
loaded one would begin a prompt with that is typed in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import gradio as gr
import numpy as np
from markupsafe import Markup

from drafters.errors import UserError
from drafters.traffic import tokens_of
from multidraft.bench.summary import in_parts
from multidraft.engine.experience import Beginning
from multidraft.policies import NO_DRAFTER
from multidraft.policies.base import acceptance_by_route
from multidraft.policies.titles import DEFAULT_POLICY, policy_title
from multidraft.service.lab import COLD, ROUTED, TAUGHT, Learnt
from multidraft.service.workbench import Workbench
from multidraft.ui.widgets import markup, tokens
from multidraft.ui.widgets.events import HIDDEN
from multidraft.ui.widgets.jobs import answered_at_once
from multidraft.ui.widgets.markup import count
from storage.figures import ratio_of_totals

SIDES = {COLD: "a cold start", ROUTED: "the router's start"}
STARTS = {COLD: "cold", ROUTED: "from the router", TAUGHT: "from past queries"}

AT_ITS_BEST = (
    "The table tells of each drafter where it is at its best in the answer; the policy looks for the most tokens per "
    "second in the answer as a whole."
)
"""Why another one than the first in the table may draft first."""

ACCEPTED = (
    "Expected of a full draft, where the drafter is at its best in the answer; in brackets one standard deviation on "
    "either side, of what past runs leave open"
)


def learnt_html(found: Learnt) -> Markup:
    """A sentence, and a table by part of the stream."""
    baselines, lines = [spec for spec in found.played if spec != TAUGHT], []
    for part in in_parts(len(found.texts)):
        played = {spec: [replays[n] for n in part] for spec, replays in found.played.items()}
        seconds = {spec: [p.seconds or 0.0 for p in replays] for spec, replays in played.items()}
        line = {"queries": f"{part.start + 1}–{part.stop}"}
        for spec, replays in played.items():
            mean = sum(sum(p.emitted) for p in replays) / sum(p.rounds for p in replays)
            line[f"tokens per round {STARTS[spec]}"] = f"{mean:.2f}"
        for spec in baselines:
            ratio = ratio_of_totals(seconds[spec], seconds[TAUGHT])
            line[f"decoding speed relative to {SIDES[spec]}"] = ratio.text() if ratio else markup.UNKNOWN
        lines.append(line)
    fair = "Compare with the router's guess, which the pool has from its first query on: any gain over it was learnt. "
    about = (
        f"{count(len(found.texts), 'recorded text')} replayed in their order as traffic under "
        f"{policy_title(DEFAULT_POLICY)}, each begun with what those before taught (from past queries). "
        f"{fair if ROUTED in found.played else ''}Times are by the same measured costs, with 95 % intervals; nothing "
        "here is compared with live runs."
    )
    table = markup.table_of(lines, figures=len(lines[0]) - 1, kind="md-ranking", label="What the pool has learnt")
    return markup.message_html("idle", about) + table


def build(workbench: Workbench) -> None:
    """Lay out the field, its button and the answer."""
    with gr.Row(elem_classes="md-ask"):
        prompt = gr.Textbox(
            label="Who would draft first for a prompt?",
            info="And what acceptance the loaded pool expects of each drafter; nothing is decoded.",
            placeholder="Type a prompt",
            lines=1,
            max_lines=6,
            scale=1,
            min_width=220,  # on a phone the button stands below it
            elem_id="beginning-prompt",
        )
        ask = gr.Button("Predict", size="md", scale=0, min_width=110, elem_id="beginning-ask")
    said = gr.HTML("", js_on_load=None, elem_id="beginning")
    events, call = [ask.click, prompt.submit], partial(answer, workbench)
    answered_at_once(events, call, prompt, said, [said], ask, "Predicting …", "No prediction", **HIDDEN)


def answer(workbench: Workbench, prompt: str) -> Markup:
    """What would begin a prompt, or why nothing would."""
    pool = workbench.pool
    try:
        found = workbench.beginning(prompt)
    except UserError as error:
        return markup.problem_html(error)
    return beginning_html(found, pool.name, pool.drafter_names)


def beginning_html(found: Beginning, pool: str, drafters: Sequence[str]) -> Markup:
    """A sentence on the first draft and on whose guess it is; then the drafters, those first of which most is
    expected."""
    context, prior = found.context, found.context.prior
    suited = context.suited()
    router = suited is not None
    if prior:
        voice = f"By what {count(prior.lessons, 'past run')} on {pool}{' and its router' if router else ''} tell"
        expected, doubt = prior.tokens(context.draft_length)
    elif suited is not None:
        voice = f"No past run on {pool} is like this prompt; by its router alone"
        expected, doubt = tokens_of(np.array(acceptance_by_route(suited)), context.draft_length), None
    else:
        voice = f"No past run on {pool} is like this prompt, and it has no router: knowing nothing"
        expected, doubt = None, None
    first = "nobody" if found.arm == NO_DRAFTER else drafters[found.arm]
    asked = f", {count(found.length, 'token')}" if found.length else ""
    policy = policy_title(DEFAULT_POLICY)
    best = int(found.arm if expected is None else expected.argmax())
    why = f" {AT_ITS_BEST}" if found.arm not in (NO_DRAFTER, best) else ""
    said = markup.message_html("done", f"{voice}, {policy} would have {first} draft first{asked}.{why}")
    if expected is None:
        return said
    reach = None if doubt is None else np.clip([expected - doubt, expected + doubt], 0, context.draft_length)
    kinds = tokens.arm_classes(drafters)
    accepted = markup.tip(f"accepted of {count(context.draft_length, 'token')}", ACCEPTED)
    lines = [
        {
            "drafter": tokens.token(kinds[arm], drafters[arm]),
            accepted: f"{expected[arm]:.1f}" + ("" if reach is None else " ({:.1f}–{:.1f})".format(*reach[:, arm])),
        }
        for arm in np.argsort(-expected, kind="stable")
    ]
    return said + markup.table_of(lines, figures=1, kind="md-expected", label="Expected acceptance by drafter")
