"""A batch of the history, for the page of a server that no longer has it as a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from drafters.errors import SuiteError
from drafters.sampling import SamplingParams
from multidraft.bench.suites import Suite, SuiteItem, load_suite, suite_names
from multidraft.bench.summary import Row
from storage import experiments, queries
from storage.experiments import Sought
from storage.filters import Filter
from storage.kept import kept
from storage.records import Round


@dataclass(frozen=True, eq=False)
class KeptBatch:
    """What the page shows of a batch, as ``BatchJob`` has it; ``about`` is its line of ``experiments.listed``. Prompts
    are numbered, since the history does not hold the ids of the suite."""

    path: Path
    about: Mapping[str, Any]
    rows: list[Row]
    items: list[SuiteItem]
    items_of_rows: list[int]
    params: SamplingParams
    drafters: list[str]
    numbers: list[int]
    """Of the runs, row by row."""
    learn: bool
    """Whether its runs may be learnt from."""

    seed = None
    figures = ()

    @property
    def id(self) -> str:
        return str(self.about["id"])

    @property
    def pool(self) -> str:
        return str(self.about["pool"])

    @property
    def hardware(self) -> str:
        return str(self.about["hardware"])

    @property
    def dtype(self) -> str:
        return str(self.about["dtype"])

    @property
    def texts_at_once(self) -> int:
        return int(self.about["streams"])

    @property
    def policies(self) -> list[str]:
        """In the order in which they were run first."""
        return list(dict.fromkeys(row.policy for row in self.rows))

    @cached_property
    def suite(self) -> Suite | None:
        return Suite(self.about["suite"], self.items) if self.about["suite"] else None

    @property
    def prompt_count(self) -> int:
        """How many prompts were to run; one that was there several times is one of :attr:`items`."""
        return max(Counter(row.policy for row in self.rows).values(), default=0)

    def rounds(self, row: int) -> list[Round]:
        """The rounds of a row."""
        run = queries.run(self.path, self.numbers[row])
        return list(run.generation.rounds) if run else []

    @property
    def bundled(self) -> str | None:
        """The bundled suite that its prompts are of, if they are."""
        name = self.about["suite"]
        if name not in suite_names():
            return None
        try:
            known = {item.prompt for item in load_suite(name).items}
        except SuiteError:
            return None
        return name if all(item.prompt in known for item in self.items) else None


@kept
def kept_batch(path: Path, id: str) -> KeptBatch | None:
    """The batch of an id; ``None`` if the history holds no run of it."""
    listed = experiments.listed(path, Sought(Filter(experiments=(id,))), limit=1)
    found = experiments.figures(path, id) if listed else []
    ran = next((values["id"] for values in found if values["round_count"]), found[0]["id"] if found else 0)
    if (run := queries.run(path, ran)) is None:
        return None
    places = {prompt: place for place, prompt in enumerate(dict.fromkeys(values["prompt"] for values in found))}
    tasks = {values["prompt"]: values["task"] or "" for values in found}
    items = [SuiteItem(str(place + 1), prompt, tasks[prompt]) for prompt, place in places.items()]
    of_rows = [places[values["prompt"]] for values in found]
    rows = [replace(Row.recorded(values), id=items[place].id) for values, place in zip(found, of_rows, strict=True)]
    numbers = [values["id"] for values in found]
    return KeptBatch(
        path, listed[0], rows, items, of_rows, run.params, list(run.generation.drafters), numbers, run.origin.learn
    )
