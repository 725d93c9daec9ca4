"""Suites: files of prompts, in the Spec-Bench form and simpler ones. A bad line is reported, the others are kept."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from multidraft.errors import SuiteError

BUNDLED = Path(__file__).parent / "suites"
MAX_BYTES = 20 * 1024 * 1024
MAX_ITEMS = 10_000

Row = dict[str, Any]
"""An object of a file, or a line of a table."""
Adapt = Callable[[Row], Row]


@dataclass(frozen=True)
class SuiteItem:
    """One prompt: ``id`` as given or its line number, ``task`` its category (``""`` if none)."""

    id: str
    prompt: str
    task: str = ""


@dataclass(frozen=True)
class LineProblem:
    """A line (or, in a JSON list, an entry) that holds no prompt, and why; ``line`` counts from 1."""

    line: int
    message: str
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.unit} {self.line}: {self.message}"


@dataclass(frozen=True)
class Suite:
    """The prompts of a file and the lines that could not be read."""

    name: str
    items: list[SuiteItem]
    problems: list[LineProblem] = field(default_factory=list)


def suite_names() -> list[str]:
    """Names of the bundled suites."""
    return sorted(path.stem for path in BUNDLED.glob("*.jsonl"))


def load_suite(name_or_path: str | Path) -> Suite:
    """Read a bundled suite by name, or a file of prompts; see :func:`load_prompts`.

    Raises:
        SuiteError: no such suite or file, too large, not text, or without a single prompt.
    """
    path = BUNDLED / f"{name_or_path}.jsonl"
    if str(name_or_path) not in suite_names():
        path = Path(name_or_path)
    if not os.path.isfile(path):  # unlike Path.is_file, False for names that no file can have
        raise SuiteError(
            f"no suite or file {str(name_or_path)!r}; bundled suites: {', '.join(suite_names()) or 'none'}"
        )
    return load_prompts(path, max_items=MAX_ITEMS, max_bytes=MAX_BYTES)


def load_prompts(path: Path, adapt: Adapt = dict, max_items: int = MAX_ITEMS, max_bytes: int = MAX_BYTES) -> Suite:
    """Read a file of prompts.

    ``.jsonl``: objects with ``turns`` (Spec-Bench, MT-bench; the first turn is the prompt) or ``prompt``, and
    optionally ``question_id`` or ``id`` and ``category`` or ``task``. ``.json``: a list of such objects.
    ``.csv``: the same as columns. Anything else: one prompt a line, empty lines skipped.

    Args:
        adapt: makes an object or row of another form one of those above.
        max_items, max_bytes: what a file may hold; of more prompts the first are used.

    Raises:
        SuiteError: too large, not text, or without a single prompt.
    """
    if (size := path.stat().st_size) > max_bytes:
        raise SuiteError(
            f"{path.name} has {size / 2**20:.0f} MB; a suite may have {max_bytes / 2**20:.0f} MB. Split the file"
        )
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path.name} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    readers = {".jsonl": _json_lines, ".ndjson": _json_lines, ".json": _json_list, ".csv": _csv_rows}
    items: list[SuiteItem] = []
    problems: list[LineProblem] = []
    for entry in readers.get(path.suffix.lower(), _plain_lines)(text, adapt):
        if isinstance(entry, LineProblem):
            problems.append(entry)
        elif len(items) >= max_items:
            problems.append(LineProblem(max_items + 1, f"only the first {max_items:,} prompts are used", "prompt"))
            break
        else:
            items.append(entry)
    if not items:
        first = f"; {problems[0]}" if problems else ""
        raise SuiteError(f"{path.name} holds no prompt{first}")
    return Suite(path.stem, items, problems)


def spread(items: Sequence[SuiteItem], limit: int | None) -> list[SuiteItem]:
    """``limit`` items evenly spread over the suite, so that every task of a sorted file keeps its share."""
    count = min(len(items), limit or len(items))
    return [items[index * len(items) // count] for index in range(count)]


def _json_lines(text: str, adapt: Adapt) -> Iterator[SuiteItem | LineProblem]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield LineProblem(number, f"not valid JSON ({_reason(error)})")
            continue
        yield (
            item_of(adapt(row), number) if isinstance(row, dict) else LineProblem(number, "expected a JSON object {…}")
        )


def _json_list(text: str, adapt: Adapt) -> Iterator[SuiteItem | LineProblem]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        yield from _json_lines(text, adapt)  # JSON lines under the wrong name, or their errors line by line
        return
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
        entry = (
            item_of(adapt(row), number) if isinstance(row, dict) else LineProblem(number, "expected a JSON object {…}")
        )
        yield replace(entry, unit="entry") if isinstance(entry, LineProblem) else entry


def _csv_rows(text: str, adapt: Adapt) -> Iterator[SuiteItem | LineProblem]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        columns = reader.fieldnames or []
    except csv.Error as error:
        yield LineProblem(1, f"the header is not valid CSV ({error})")
        return
    if not {"prompt", "turns"} & set(adapt(dict.fromkeys(columns, "?"))):
        yield LineProblem(1, f"the header needs a column 'prompt' (or 'turns'); it has: {', '.join(columns) or 'none'}")
        return
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield LineProblem(reader.reader.line_num, f"not valid CSV ({error})")  # its own count stops at errors
            continue
        yield item_of(adapt(row), reader.line_num)


def _plain_lines(text: str, adapt: Adapt) -> Iterator[SuiteItem | LineProblem]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield SuiteItem(str(number), line.strip())


def item_of(row: Row, line: int) -> SuiteItem | LineProblem:
    """The prompt of a row, or what is wrong with it."""
    prompt = row.get("prompt")
    if prompt is None and (turns := row.get("turns")):
        if isinstance(turns, str) and turns.lstrip().startswith("["):
            try:
                turns = json.loads(turns)
            except (ValueError, RecursionError):
                return LineProblem(line, "'turns' is not a valid JSON list")
        prompt = turns[0] if isinstance(turns, list) else turns
    if not isinstance(prompt, str):
        return LineProblem(line, "needs 'prompt' (text) or 'turns' (a list of texts)")
    if not prompt.strip():
        return LineProblem(line, "the prompt is empty")
    identity = next((row[key] for key in ("question_id", "id") if row.get(key) not in (None, "")), line)
    task = next((row[key] for key in ("category", "task") if row.get(key)), "")
    item = SuiteItem(str(identity), prompt, str(task))
    try:
        f"{item.id}{item.prompt}{item.task}".encode()
    except UnicodeEncodeError:
        return LineProblem(line, "holds half of a character (a lone surrogate such as \\ud83d)")
    return item


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"
