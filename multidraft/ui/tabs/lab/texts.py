"""Which recorded texts the Lab replays: a pool on a machine, filters, or one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import gradio as gr

from drafters.errors import UserError
from multidraft.bench.action import listed
from multidraft.policies.titles import policy_title
from multidraft.replay.recorded import none_replayable, recorded_texts
from multidraft.service.inputs import whole_number
from multidraft.service.lab import LabWork
from multidraft.ui import example
from multidraft.ui.result_pages.result import name_of
from multidraft.ui.widgets.events import Updates
from multidraft.ui.widgets.markup import count, message_html, minute, problem_html
from storage import experiments, texts
from storage.cache import cached
from storage.experiments import Sought
from storage.filters import Filter
from storage.problems import StorageError
from storage.texts import Bench, TextFilter

ALL_SUITES = "all suites"
EVERY = [("all batches and runs", "")]
MOST_TEXTS, MOST_BATCHES = 200, 50
EXAMPLE = "example"
"""Begins the keys of pools and machines of the recorded examples."""

RECENT = TextFilter(among=20_000)
"""Runs older than so many are not offered; one of them can still be named by its number."""

_benches, _groups, _size = cached(texts.benches), cached(texts.groups), cached(texts.size)
_experiments = cached(experiments.listed)


@dataclass(frozen=True)
class Asked:
    """What the fields hold, in their order: pool and machine, suite, tasks, one batch, newest texts, one run."""

    bench: str | None
    suite: str
    tasks: Sequence[str]
    batch: str | None
    newest: float | None
    run: float | None


FIELDS = len(Asked.__dataclass_fields__)


class TextChoice:
    """The fields, and what they choose from the history that ``own`` replays, or from the recorded examples.

    Attributes:
        empty: stands in place of the rest of the tab where the history cannot be read; ``inside`` is that rest.
        fields: those of :class:`Asked`.
        note: says how many texts that is.
    """

    empty: gr.HTML
    inside: gr.Column

    def __init__(self, own: LabWork):
        self.own = own
        self.fields: list[gr.Dropdown | gr.Number] = []

    def build(self) -> None:
        bench = gr.Dropdown([], label="Pool and machine", elem_id="lab-bench")
        batch = gr.Dropdown(EVERY, value="", label="Batch or benchmark", elem_id="lab-batch")
        with gr.Row():
            suite = gr.Dropdown([ALL_SUITES], value=ALL_SUITES, label="Suite", min_width=150, elem_id="lab-suite")
            tasks = gr.Dropdown([], multiselect=True, label="Tasks (all unless chosen)", min_width=150)
        with gr.Row():
            newest = gr.Number(
                50, label="Newest texts", info=f"at most {MOST_TEXTS}", min_width=120, elem_id="lab-newest"
            )
            run = gr.Number(None, label="Or one run", info="by its number", min_width=120, elem_id="lab-run")
        note = gr.HTML("", js_on_load=None, elem_id="lab-texts")
        self.fields, self.note = [bench, suite, tasks, batch, newest, run], note

    def refresh(self, *values: Any) -> Updates:
        """What is wrong with the history, or the inside of the tab, and the first four fields with what there is now to
        choose.

        A value is given only where the field's own is gone: it may have been changed meanwhile.
        """
        asked = Asked(*values)
        try:
            found = self._benches()
            wanted = asked.bench or self._bench_of(asked)
            key = wanted if wanted in found else next(iter(found))
            path, of_bench = self._work(key).path, _of_bench(found[key])
            groups = _groups(path, of_bench)
            batches = _batches(path, found[key])
        except StorageError as error:
            return {self.empty: problem_html(error), self.inside: gr.Column(visible=False)}
        suite = asked.suite if asked.suite in groups["suites"] else ALL_SUITES
        tasks = [task for task in asked.tasks if task in groups["tasks"]]
        benches = [(_label(bench, one, found), one) for one, bench in found.items()]
        batch = asked.batch if asked.batch in {id for _, id in batches} else ""
        return {
            self.empty: "",
            self.inside: gr.Column(visible=True),
            self.fields[0]: gr.Dropdown(benches, **_unless(asked.bench, key)),
            self.fields[1]: gr.Dropdown([ALL_SUITES, *groups["suites"]], **_unless(asked.suite, suite)),
            self.fields[2]: gr.Dropdown(groups["tasks"], multiselect=True, **_unless(list(asked.tasks), tasks)),
            self.fields[3]: gr.Dropdown([*EVERY, *batches], **_unless(asked.batch, batch)),
        }

    def _bench_of(self, asked: Asked) -> str | None:
        """The pool and machine of the batch that an address names, or those of the example that has its run."""
        for begin, work in self._works.items():
            if begin and asked.run is not None and asked.run >= example.FIRST:
                return next((key for key in self._benches() if key.startswith(EXAMPLE)), None)
            if asked.batch and (one := experiments.experiment(work.path, asked.batch)):
                return _key(begin, one["card_hash"], one["hardware"], one["dtype"])
        return None

    @cached_property
    def _works(self) -> dict[str, LabWork]:
        """The histories, by the beginning of the keys of their pools and machines."""
        return {"": self.own, EXAMPLE: LabWork(self.own.workbench, example.path())}

    def _work(self, key: str | None) -> LabWork:
        return self._works[EXAMPLE if (key or "").startswith(f"{EXAMPLE}\n") else ""]

    def work(self, asked: Asked) -> LabWork:
        """What replays the history that is chosen; a run's number says which has it."""
        if asked.run is not None:
            return self._works[EXAMPLE if asked.run >= example.FIRST else ""]
        return self._work(asked.bench)

    def _benches(self) -> dict[str, Bench]:
        """Pools and machines by their keys, that of the newest run first; those of the examples are the last."""
        found = ((begin, bench) for begin, work in self._works.items() for bench in _benches(work.path, RECENT))
        return {_key(begin, b.card_hash, b.hardware, b.dtype): b for begin, b in found}

    def describe(self, *values: Any) -> str:
        """How many texts are chosen, or what is wrong with the choice."""
        try:
            asked = Asked(*values)
            chosen, path = self.filter(asked), self.work(asked).path
            if chosen.id is not None:
                (text,) = recorded_texts(path, chosen)
                table = text.scores.acceptance
                tokens = 0 if table is None else table.accepted.shape[-1]
                how = f"{policy_title(text.generation.policy)} with draft length {text.params.draft_length}"
                return message_html("done", f"Run {chosen.id}: {count(tokens, 'token')}, recorded under {how}.")
            found = _size(path, chosen)
            why = none_replayable(path, asked.batch) if asked.batch and not found.texts else ""
            benches = self._benches()
        except (UserError, StorageError) as error:
            return problem_html(error)
        if not found.texts:
            return message_html("error", f"No text matches. {why or 'Clear a filter.'}")
        lengths = f"draft length{'s' * (len(found.draft_lengths) > 1)} {listed([str(n) for n in found.draft_lengths])}"
        said = f"{count(found.texts, 'text')} of {count(found.prompts, 'prompt')}, {count(found.tokens, 'token')}, "
        said += f"recorded with {lengths}; each text counts once, and in speed-ups each prompt."
        if found.older:
            said += (
                f" {count(found.older, 'older text')} left out: raise Newest texts (at most {MOST_TEXTS}) or filter."
            )
        said += _about_others(str(asked.bench), benches, found.versions)
        return message_html("done", said)

    def filter(self, asked: Asked) -> TextFilter:
        """The texts chosen.

        Raises:
            UserError: a field is empty or out of range, or there is nothing to choose.
        """
        if asked.run is not None:
            return TextFilter(id=whole_number("the run's number", asked.run))
        most = whole_number("newest texts", asked.newest)
        if not 1 <= most <= MOST_TEXTS:
            raise UserError(f"newest texts must be 1 to {MOST_TEXTS}, got {most}")
        suite = None if asked.suite == ALL_SUITES else asked.suite
        chosen = _of_bench(self.bench(asked.bench), tuple(asked.tasks))
        if asked.batch:  # which may be older than the runs that are offered
            chosen = TextFilter(replace(chosen.runs, batch_id=(asked.batch,)))
        return replace(chosen, suite=suite, newest=most)

    def bench(self, key: str | None) -> Bench:
        """The pool and machine chosen.

        Raises:
            UserError: none is.
        """
        if bench := self._benches().get(str(key)):
            return bench
        raise UserError("choose a pool and machine with runs to replay")

    def policies(self, key: str | None) -> list[tuple[str, str]]:
        """Those that can be replayed on its texts."""
        return self._work(key).choices(self.bench(key))


KEEP = """(bench, suite, tasks, batch, newest, policies) => address({ lab_bench: batch ? null : bench,
  lab_suite: suite, lab_task: tasks, lab_batch: batch || null, lab_newest: newest, lab_policy: policies })"""
"""Script that has the address keep what is chosen: the values of pool and machine, which a batch has of its own, suite,
tasks, batch, newest texts and policies."""


def query_of(asked: Asked, policies: Sequence[str]) -> list[tuple[str, str]]:
    """The same as the parameters of an address that opens the Lab; of one run, those that replay it."""
    chosen = [("tab", "lab"), *(("lab_policy", spec) for spec in policies)]
    if asked.run is not None:
        return [*chosen, ("run", f"{asked.run:.0f}")]
    of = ("lab_batch", asked.batch) if asked.batch else ("lab_bench", asked.bench or "")
    chosen += [of, *(("lab_task", task) for task in asked.tasks)]
    chosen += [("lab_suite", asked.suite)] if asked.suite != ALL_SUITES else []
    return [*chosen, ("lab_newest", f"{asked.newest:.0f}")]


def restored(request: gr.Request) -> tuple[Any, ...]:
    """Pool and machine, suite, tasks, batch, newest texts and policies as the address has them, what it does not name
    as it is; what there is not goes when the tab is opened (:meth:`TextChoice.refresh`)."""
    query = request.query_params
    bench = query.get("lab_bench")
    suite, newest, unchanged = query.get("lab_suite"), query.get("lab_newest", ""), gr.skip()
    batch = query.get("lab_batch")
    tasks, policies = query.getlist("lab_task"), query.getlist("lab_policy")
    return (
        gr.Dropdown([bench], value=bench) if bench else unchanged,
        gr.Dropdown([ALL_SUITES, suite], value=suite) if suite else unchanged,
        gr.Dropdown(tasks, value=tasks, multiselect=True) if tasks else unchanged,
        gr.Dropdown([*EVERY, batch], value=batch) if batch else unchanged,
        int(newest) if newest.isascii() and newest.isdigit() and len(newest) < 9 else unchanged,
        policies or unchanged,
    )


def _unless(shown: Any, value: Any) -> dict[str, Any]:
    """A field's value, where it does not show it already."""
    return {} if shown == value else {"value": value}


def _of_bench(bench: Bench, tasks: tuple[str, ...] = ()) -> TextFilter:
    return replace(
        RECENT, runs=Filter(card_hash=bench.card_hash, hardware=bench.hardware, dtype=bench.dtype, task=tasks)
    )


def _batches(path: Path, bench: Bench) -> list[tuple[str, str]]:
    """The newest batches and benchmarks of a pool on a machine, by name, and their ids."""
    runs = replace(_of_bench(bench).runs, source=("batch", "bench", "api"))
    found = _experiments(path, Sought(runs), limit=MOST_BATCHES)
    several = len({one["version"] for one in found}) > 1
    return [
        (
            f"{name_of(one)}, draft length {one['draft_length']}, {minute(one['created_at'])}"
            + (f", {one['version']}" if several else ""),
            one["id"],
        )
        for one in found
    ]


def _key(begin: str, *parts: str) -> str:
    return "\n".join((begin, *parts) if begin else parts)


def _label(bench: Bench, key: str, all: Mapping[str, Bench]) -> str:
    """Named with its card where another card has the same pool's name."""
    cards = {b.card_hash for b in all.values() if b.pool == bench.pool}
    card = f" (card {bench.card_hash[:6]})" if len(cards) > 1 else ""
    of = "Recorded examples: " if key.startswith(EXAMPLE) else ""
    return f"{of}{bench.pool}{card} on {bench.hardware}, {bench.dtype}: {count(bench.texts, 'text')}"


def _about_others(key: str, all: Mapping[str, Bench], versions: Sequence[str]) -> str:
    """Sentences on what is shown of a history with several pools, machines or versions, and where to choose."""
    said = " Recorded examples, not this server's runs." if key.startswith(EXAMPLE) else ""
    if others := sum(not other.startswith(EXAMPLE) for other in all if other != key):
        said += f" The history has texts of other pools or machines too ({others}): choose above."
    if versions[1:]:
        said += f" They come from versions {listed(versions)}; choose a batch or benchmark for a single one."
    return said
