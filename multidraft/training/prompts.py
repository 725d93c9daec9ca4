"""Prompts to distil from: read from files or the Hub, by task, some of each held out."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import huggingface_hub
from pyarrow import parquet

from drafters.errors import SuiteError, TrainingError, first_line
from multidraft.bench.suites import Row, SuiteItem, item_of, load_prompts
from multidraft.bench.table import count
from storage.records import OWN

GENERALIST = "general"
"""The drafter that learns from the answers of all tasks."""
MAX_PROMPTS, MAX_BYTES = 1_000_000, 4 * 2**30
UNTRAINED = "before.training"
"""Name under which the model that the drafters started from is measured."""
CONVERSATIONS = ("messages", "conversations")
"""Columns of whole conversations, of which the user's first turn is the prompt."""

READABLE = (".jsonl", ".ndjson", ".json", ".csv", ".parquet")
HUB_FORM = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+?))?(:(?P<files>.+))?")
"""``OWNER/NAME``, and if need be ``@REVISION`` and which ``:FILES``: a path, or a pattern such as ``main/train*``."""


@dataclass(frozen=True)
class TaskPrompts:
    """The prompts of a task as they are put to the target."""

    train: list[str]
    heldout: list[str]


def read_tasks(
    sources: Sequence[str],
    only: Sequence[str] = (),
    templates: Mapping[str, str] | None = None,
    column: str | None = None,
    limit: int | None = None,
    heldout: float = 0.1,
) -> dict[str, TaskPrompts]:
    """Read prompts by task, in the order of ``only``, or of the sources.

    Which prompts are held out depends on their text alone, so that more data never moves one from one side to the
    other by much. A prompt that stands there twice is used once.

    Args:
        sources: ``[TASK=]FILE`` in the forms of suites, or ``[TASK=]OWNER/NAME`` of the Hub. Where neither the source
            nor a row names a task, it is called as the file.
        only: tasks to keep; by default all.
        templates: of some tasks a text with ``{prompt}`` in it, in which the prompt is put.
        column: which field or column holds the prompt, where it has no usual name.
        limit: most prompts of a task.
        heldout: share of a task's prompts, at least one.

    Raises:
        TrainingError: no prompts, an unknown task, or a source that cannot be read; the message says which.
    """
    found = defaultdict[str, list[str]](list)
    for source in sources:
        named, file = _split(source)
        for item, path in _items(file, column):
            found[task_name(named or item.task or path.stem)].append(item.prompt)
    chosen = [task_name(task) for task in only] or list(found)
    templates = {task_name(task): text for task, text in (templates or {}).items()}
    if unknown := [task for task in [*chosen, *templates] if task not in found]:
        raise TrainingError(f"unknown task {unknown[0]!r}; the data has: {', '.join(found)}")
    seen: set[str] = set()
    tasks = {}
    for task in dict.fromkeys(chosen):
        template = templates.get(task, "{prompt}")
        fresh = {template.replace("{prompt}", prompt) for prompt in found[task]} - seen
        seen |= fresh
        prompts = sorted(fresh, key=_order)[:limit]
        if len(prompts) < 2:
            has = count(len(prompts), "prompt")
            raise TrainingError(f"task {task!r} has {has}; two are needed, one to train on, one held out")
        kept = min(max(1, math.ceil(heldout * len(prompts))), len(prompts) - 1)
        tasks[task] = TaskPrompts(prompts[kept:], prompts[:kept])
    return tasks


FILES = ("work", "router", "card.yaml", "readme.md")
"""What else may stand in the folder of a finished pool, beside the drafters by their names."""


def task_name(text: str) -> str:
    """A task's name as a drafter of a card may be called.

    Raises:
        TrainingError: nothing is left of it, or it means something else.
    """
    name = re.sub(r"[^a-z0-9_.]+", "-", text.lower()).strip("-._")
    if not name:
        raise TrainingError(f"the task {text!r} has no letter of a-z; name it by --data NAME=FILE")
    if name in (GENERALIST, OWN, UNTRAINED, *FILES):
        raise TrainingError(f"no task may be called {name!r}: it means something else in a pool; give --data NAME=FILE")
    return name


def read_templates(given: Sequence[str]) -> dict[str, str]:
    """Templates from ``TASK=TEXT with {prompt}``.

    Raises:
        TrainingError: one that has no task or no place for the prompt.
    """
    templates = {}
    for entry in given:
        task, mark, text = entry.partition("=")
        if not mark or "{prompt}" not in text:
            raise TrainingError(f"--template {entry!r} should be TASK=TEXT, with {{prompt}} where the prompt belongs")
        templates[task] = text.replace("\\n", "\n")
    return templates


def _split(source: str) -> tuple[str, str]:
    """Task (empty if none) and file or data set."""
    task, mark, rest = source.partition("=")
    if not mark or os.path.isfile(source):
        return "", source
    if not task.strip() or not rest.strip():
        raise TrainingError(f"--data {source!r} should be TASK=FILE or TASK=OWNER/NAME")
    return task, rest


def _items(source: str, column: str | None) -> Iterator[tuple[SuiteItem, Path]]:
    if os.path.isdir(source):
        raise TrainingError(f"{source} is a folder; name the files in it")
    if not os.path.isfile(source) and (source.count("/") != 1 and ":" not in source):
        raise TrainingError(f"there is no file {source}; a data set of the Hub is named OWNER/NAME")
    for path in [Path(source)] if os.path.isfile(source) else dataset_files(source):
        if path.suffix.lower() == ".parquet":
            yield from ((item, path) for item in _parquet(path, adapter(column)))
            continue
        try:
            suite = load_prompts(path, adapter(column), MAX_PROMPTS, MAX_BYTES, MAX_PROMPTS)
        except SuiteError as error:
            where = f" (by --column {column})" if column else "; say by --column which field holds the prompt"
            raise TrainingError(f"{error}{where if 'needs' in str(error) else ''}") from None
        for problem in suite.problems[:3]:
            print(f"{path.name}, {problem}: left out")
        if (more := len(suite.problems) + suite.more_problems - 3) > 0:
            print(f"{path.name}: {more:,} more left out")
        yield from ((item, path) for item in suite.items)


def _parquet(path: Path, adapt: Callable[[Row], Row]) -> Iterator[SuiteItem]:
    try:
        table = parquet.read_table(path).to_pylist()
    except Exception as error:
        raise TrainingError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None
    rows = [item_of(adapt(row), number) for number, row in enumerate(table, start=1)]
    if not any(isinstance(row, SuiteItem) for row in rows):
        problem = rows[0] if rows else "it is empty"
        raise TrainingError(f"{path.name} holds no prompt; {problem}; say by --column which holds it")
    yield from (row for row in rows if isinstance(row, SuiteItem))


def adapter(column: str | None) -> Callable[[Row], Row]:
    """Makes rows of data sets rows of a suite: GSM8K's ``question``, Alpaca's ``instruction`` with its ``input``,
    conversations, or what ``column`` holds."""
    names = (
        [column, column.strip().lower()] if column else ["prompt", "turns", "question", "instruction", *CONVERSATIONS]
    )

    def adapt(row: Row) -> Row:
        row = {**{str(key).strip().lower(): value for key, value in row.items()}, **row}
        taken = ("prompt", "turns", "messages")
        rest = {key: value for key, value in row.items() if str(key).strip().lower() not in taken}
        name = next((name for name in names if row.get(name) is not None), None)
        if name is None:
            return rest
        found = row[name]
        if isinstance(found, list):
            return {**rest, "turns" if all(isinstance(turn, str) for turn in found) else "messages": found}
        if name == "instruction" and isinstance(row.get("input"), str) and row["input"].strip():
            found = f"{found}\n\n{row['input']}"
        return {**rest, name if name == "turns" else "prompt": found}

    return adapt


def _order(prompt: str) -> bytes:
    return hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def dataset_files(source: str) -> list[Path]:
    """Fetch the files of prompts of a data set, or those that ``source`` (see :data:`HUB_FORM`) names.

    Without a pattern they are those whose path says ``train``, or all, of the first kind of :data:`READABLE` there is.

    Raises:
        TrainingError: no such data set, no network, or no file that can be read.
    """
    form = HUB_FORM.fullmatch(source)
    if form is None:
        raise TrainingError(f"{source!r} is neither a file nor a data set of the Hub (OWNER/NAME)")
    name, revision, pattern = form["id"], form["revision"], form["files"]
    try:
        every = huggingface_hub.list_repo_files(name, repo_type="dataset", revision=revision)
        chosen = choose(every, pattern)
        fetched = [huggingface_hub.hf_hub_download(name, f, repo_type="dataset", revision=revision) for f in chosen]
    except Exception as error:
        raise TrainingError(
            f"cannot fetch the data set {name} from the Hub: {first_line(error)}. If it is a file that you mean, there "
            "is none of that name; else check name and network (and, for a gated one, that you are logged in)"
        ) from error
    if not fetched:
        shown = ", ".join(sorted(every)[:8]) or "nothing"
        raise TrainingError(
            f"the data set {name} has no file {f'like {pattern!r}' if pattern else 'of prompts'} that can be read "
            f"({', '.join(READABLE)}); it holds {shown}. Say which by {name}:FILES, or download and convert it"
        )
    return [Path(file) for file in fetched]


def choose(files: list[str], pattern: str | None) -> list[str]:
    """Which ``files`` of a data set hold its prompts; see :func:`dataset_files`."""
    visible = [f for f in sorted(files) if not any(part.startswith(".") for part in PurePosixPath(f).parts)]
    if pattern:
        return [f for f in visible if fnmatch(f, pattern) and f.lower().endswith(READABLE)]
    for kind in READABLE:
        found = [f for f in visible if f.lower().endswith(kind) and PurePosixPath(f).name != "dataset_infos.json"]
        if found:
            return [f for f in found if "train" in f.lower()] or found
    return []
