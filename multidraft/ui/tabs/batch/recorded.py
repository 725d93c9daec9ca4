"""A batch of the history, for the page of a server that no longer has it as a job; a batch once more in the form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr

from drafters.errors import SuiteError
from drafters.sampling import SamplingParams
from multidraft.bench.suites import Suite, SuiteItem, load_suite, suite_names
from multidraft.bench.summary import Row
from multidraft.service.batch import BatchJob
from multidraft.service.workbench import Workbench
from storage import experiments, queries
from storage.cache import cached
from storage.problems import StorageError
from storage.records import Round
from storage.unfinished import unfinished


@dataclass(frozen=True, eq=False)
class RecordedBatch:
    """What the page shows of a batch, as ``BatchJob`` has it; ``about`` is its line of ``experiments.listed``. Prompts
    are numbered, since the history does not hold the ids of the suite."""

    path: Path
    about: Mapping[str, Any]
    id: str
    pool: str
    hardware: str
    dtype: str
    texts_at_once: int
    suite: Suite | None
    rows: list[Row]
    items: list[SuiteItem]
    items_of_rows: list[int]
    params: SamplingParams
    drafters: list[str]
    numbers: list[int]
    """Of the runs, row by row."""
    learn: bool
    """Whether its runs may be learnt from."""
    asked: Mapping[str, Any] | None
    """What it was asked for (``storage.unfinished``), if it has not ended: it waits, or another server is at it."""

    seed = None
    figures = ()

    @property
    def policies(self) -> list[str]:
        """In the order in which they were run first, or are to be."""
        if self.asked:
            return list(self.asked["policies"])
        return list(dict.fromkeys(row.policy for row in self.rows))

    @property
    def prompt_count(self) -> int:
        """How many prompts were to run; one that was there several times is one of :attr:`items`."""
        if self.asked:
            return len(self.asked["items"])
        return max(Counter(row.policy for row in self.rows).values(), default=0)

    def rounds(self, row: int) -> list[Round]:
        """The rounds of a row."""
        run = queries.run(self.path, self.numbers[row])
        return list(run.generation.rounds) if run else []

    @property
    def bundled(self) -> str | None:
        """The bundled suite that its prompts are of, if they are."""
        if self.suite is None or self.suite.name not in suite_names():
            return None
        known = {item.prompt for item in load_suite(self.suite.name).items}
        return self.suite.name if all(item.prompt in known for item in self.items) else None


@cached
def recorded_batch(path: Path, id: str) -> RecordedBatch | None:
    """The batch of an id; ``None`` if the history holds no run of it."""
    if (about := experiments.experiment(path, id)) is None:
        return None
    found = experiments.figures(path, id)
    ran = next((values["id"] for values in found if values["round_count"]), found[0]["id"])
    if (run := queries.run(path, ran)) is None:
        return None
    places = {prompt: place for place, prompt in enumerate(dict.fromkeys(values["prompt"] for values in found))}
    tasks = {values["prompt"]: values["task"] or "" for values in found}
    ids = {values["prompt"]: values["prompt_id"] for values in found}
    items = [SuiteItem(ids[prompt] or str(place + 1), prompt, tasks[prompt]) for prompt, place in places.items()]
    of_rows = [places[values["prompt"]] for values in found]
    rows = [
        row if values["prompt_id"] else replace(row, id=items[place].id)
        for row, values, place in zip(map(Row.recorded, found), found, of_rows, strict=True)
    ]
    return RecordedBatch(
        path,
        about,
        **{name: str(about[name]) for name in ("id", "pool", "hardware", "dtype")},
        texts_at_once=about["streams"],
        suite=Suite(about["suite"], items) if about["suite"] else None,
        rows=rows,
        items=items,
        items_of_rows=of_rows,
        params=run.params,
        drafters=list(run.generation.drafters),
        numbers=[values["id"] for values in found],
        learn=run.origin.learn,
        asked=unfinished(path).get(id),
    )


def form_of(batch: BatchJob | RecordedBatch, workbench: Workbench) -> tuple[Any, ...]:
    """The values of the form that start a batch once more, in the order of the fields, as far as the file is still
    there."""
    if isinstance(batch, RecordedBatch):
        suite, file = batch.bundled, None
    else:
        name = batch.suite.name if batch.suite else None
        suite = name if batch.file is None and name in suite_names() else None
        file = batch.file if batch.file and Path(batch.file).exists() else None  # uploads are kept for a day
    params = batch.params
    draft_length = 0 if params.draft_length == workbench.pool.draft_length else params.draft_length
    settings = (params.max_new_tokens, batch.texts_at_once, draft_length, params.temperature)
    early = isinstance(batch, RecordedBatch) and batch.about["ending"]  # how many prompts there were to be is unknown
    most, note = 0 if early else _most(file or suite, batch.prompt_count), ""
    with suppress(StorageError):
        note = experiments.note(workbench.store.path, batch.id)
    # Who opted out then has not opted in by coming back; who has opted out since, stays out.
    learn = gr.skip() if batch.learn else False
    return suite, file, batch.policies, most, *settings, note, learn


def _most(source: str | None, prompts: int) -> int:
    """The field for the most prompts of a batch that ran so many of a suite: 0, which is all, where these were all."""
    try:
        return 0 if source and len(load_suite(source).items) == prompts else prompts
    except SuiteError:
        return prompts
