"""Suites: files of prompts, in the Spec-Bench form and simpler ones. A bad line is reported, the others are read."""

from __future__ import annotations

import csv
import json
import os
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from drafters.errors import SuiteError, meant
from multidraft.bench.separators import csv_mark

BUNDLED = Path(__file__).parent / "suites"
MAX_BYTES = 20 * 1024 * 1024
MAX_ITEMS = 10_000
MAX_ENTRY = 2**20
"""Bytes of one line, or characters of one entry of a JSON list."""

MAX_NAME = 200
"""Characters of an id or a task."""

MAX_PROBLEMS = 1_000
"""Lines without a prompt after which reading ends: the file is not what its name says."""

SHOWN_PROBLEMS = 20
SMALL = 1024
"""Bytes that are looked at to tell what a file is."""

LINES_PER_ITEM = 20
"""A file may have this many lines for each prompt that may be read."""

_KINDS = {bool: "true or false", list: "a list", dict: "an object"}
_TOO_LONG = f"longer than {MAX_ENTRY >> 20} MB"
_SEPARATORS = re.compile(r"[\s,]*")

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
    """The prompts of a file, the first of the lines that could not be read, and how many more those are."""

    name: str
    items: list[SuiteItem]
    problems: list[LineProblem] = field(default_factory=list)
    more_problems: int = 0

    @property
    def left_out(self) -> list[str]:
        """A line for each of :attr:`problems`, and one for the others."""
        more = [f"{self.more_problems:,} more lines"] if self.more_problems else []
        return [*map(str, self.problems), *more]


def suite_names() -> list[str]:
    """Names of the bundled suites."""
    return sorted(path.stem for path in BUNDLED.glob("*.jsonl"))


def load_suite(name_or_path: str | Path) -> Suite:
    """Read a bundled suite by name, or a file of prompts; see :func:`load_prompts`, also for errors."""
    name, bundled = str(name_or_path), suite_names()
    path = BUNDLED / f"{name}.jsonl" if name in bundled else Path(name)
    if not os.path.isfile(path):  # unlike Path.is_file, False for names that no file can have
        raise SuiteError(f"no suite or file {name!r}; {meant(name, bundled)}bundled suites: {', '.join(bundled)}")
    return load_prompts(path, max_items=MAX_ITEMS, max_bytes=MAX_BYTES)


def load_prompts(
    path: Path,
    adapt: Adapt = dict,
    max_items: int = MAX_ITEMS,
    max_bytes: int = MAX_BYTES,
    max_problems: int = MAX_PROBLEMS,
) -> Suite:
    """Read a file of prompts, a line or entry at a time.

    ``.jsonl``: objects with ``turns`` (Spec-Bench, MT-bench; the first turn is the prompt), ``prompt`` or OpenAI's
    ``messages``, as they are or in the ``body`` of a batch file (the first turn, below what the system says before it),
    and optionally ``question_id`` or ``id`` and ``category`` or ``task``. ``.json``: a list of such objects.
    ``.csv``: the same as columns, with commas, semicolons or tabs. Anything else: a prompt a line, empty ones skipped.

    Args:
        adapt: makes an object or row of another form one of those above.
        max_items, max_bytes: what a file may hold; of more prompts the first are used.
        max_problems: lines without a prompt after which reading ends.

    Raises:
        SuiteError: unreadable, too large, too many lines, not text, or without a single prompt.
    """
    read, needs = _FORMS.get(path.suffix.lower(), (_plain_lines, "one prompt per line"))
    items, problems = list[SuiteItem](), list[LineProblem]()
    bad = beyond = 0
    unused = f"only the first {max_items:,} prompts are used"
    try:
        if (size := path.stat().st_size) > max_bytes:
            raise SuiteError(f"{path.name} has {size >> 20} MB; a suite may have {max_bytes >> 20} MB. Split the file")
        if size < SMALL and not path.read_bytes().removeprefix(BOM_UTF8).strip():
            raise SuiteError(f"{path.name} is empty. It needs {needs}")
        for entry in read(_File(path, LINES_PER_ITEM * max_items), adapt):
            if isinstance(entry, SuiteItem):
                if len(items) < max_items:
                    items.append(entry)
                else:
                    beyond += 1
                continue
            bad += 1
            problems.extend([entry] * (bad <= SHOWN_PROBLEMS))
            if bad == max_problems:
                problems.append(replace(entry, message=f"reading ended here, after {bad:,} without a prompt"))
                break
    except OSError as error:
        raise SuiteError(f"{path.name} cannot be read: {error.strerror or error}") from None
    except SuiteError as error:
        if not beyond:
            raise
        unused += f", and the end was not read: {error}"
    if beyond:
        problems.append(LineProblem(max_items + 1, unused, "prompt"))
    if not items:
        raise SuiteError("; ".join([f"{path.name} holds no prompt", *map(str, problems[:1])]))
    return Suite(path.stem, items, problems, max(bad - SHOWN_PROBLEMS, 0) + max(beyond - 1, 0))


class _File:
    """A text file that is read line by line."""

    def __init__(self, path: Path, max_lines: int):
        self.path, self.max_lines = path, max_lines
        with path.open("rb") as file:
            self.head = file.read(SMALL)

    def decode(self, raw: bytes, begin: int = 0) -> str:
        """The text of ``raw``, which begins at byte ``begin``; a :class:`SuiteError` if it is not UTF-8."""
        try:
            text = raw.decode("utf-8" if begin else "utf-8-sig")
            if (wrong := raw.find(b"\0")) < 0:
                return text
        except UnicodeDecodeError as error:
            wrong = error.start
        if b"\0" in self.head and not self.head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            raise SuiteError(f"{self.path.name} is a picture or other binary file, or text in UTF-16; save it as UTF-8")
        raise SuiteError(f"{self.path.name} is not UTF-8 text (byte {begin + wrong}); save it as UTF-8")

    def lines(self) -> Iterator[tuple[int, str | None]]:
        """All lines with their numbers; ``None`` for one of more than ``MAX_ENTRY`` bytes."""
        begin = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_ENTRY), b""), start=1):
                if number > self.max_lines:
                    raise SuiteError(f"{self.path.name} has more than {self.max_lines:,} lines; split the file")
                part, too_long = line, False
                while len(part) == MAX_ENTRY and not part.endswith(b"\n"):
                    part, too_long = file.readline(MAX_ENTRY), True
                yield number, None if too_long else self.decode(line, begin)
                begin = file.tell()


def spread(items: Sequence[SuiteItem], limit: int | None) -> list[SuiteItem]:
    """``limit`` items evenly spread over the suite, so that every task of a sorted file keeps its share."""
    count = min(len(items), limit or len(items))
    return [items[index * len(items) // count] for index in range(count)]


def _json_lines(file: _File, adapt: Adapt) -> Iterator[SuiteItem | LineProblem]:
    return _by_line(file, lambda line, number: _json_entry(line, adapt, number))


def _plain_lines(file: _File, adapt: Adapt) -> Iterator[SuiteItem | LineProblem]:
    return _by_line(file, lambda line, number: SuiteItem(str(number), line.strip()))


def _by_line(file: _File, read: Callable[[str, int], SuiteItem | LineProblem]) -> Iterator[SuiteItem | LineProblem]:
    """What is read from each line that is not empty."""
    for number, line in file.lines():
        if line is None:
            yield LineProblem(number, _TOO_LONG)
        elif line.strip():
            yield read(line, number)


def _json_entry(text: str, adapt: Adapt, number: int) -> SuiteItem | LineProblem:
    try:
        return _object_of(json.loads(text), adapt, number)
    except (ValueError, RecursionError) as error:
        return LineProblem(number, f"not valid JSON ({_reason(error)})")


def _object_of(row: Any, adapt: Adapt, number: int) -> SuiteItem | LineProblem:
    return item_of(adapt(row), number) if isinstance(row, dict) else LineProblem(number, "expected a JSON object {…}")


def _json_values(file: _File, adapt: Adapt) -> Iterator[SuiteItem | LineProblem]:
    """A list of objects, a single one, or JSON lines under the wrong name."""
    text = file.decode(file.path.read_bytes())
    at, decoder = _after_separators(text, 0), json.JSONDecoder()
    if text[at : at + 1] != "[":
        single = _json_entry(text, adapt, 1) if len(text) <= MAX_ENTRY else None
        yield from [single] if isinstance(single, SuiteItem) else _json_lines(file, adapt)
        return
    number, at = 0, at + 1
    # Entry by entry: the whole list as Python objects would take many times the memory of its text.
    while text[(begin := _after_separators(text, at)) : begin + 1] not in ("", "]"):
        number += 1
        try:
            row, at = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            yield LineProblem(number, f"not valid JSON ({_reason(error)}); the rest is not read", "entry")
            return
        entry = _object_of(row, adapt, number) if at - begin <= MAX_ENTRY else LineProblem(number, _TOO_LONG)
        yield replace(entry, unit="entry") if isinstance(entry, LineProblem) else entry


def _after_separators(text: str, at: int) -> int:
    """Where the next JSON value or bracket of ``text`` begins, from ``at`` on."""
    found = _SEPARATORS.match(text, at)
    return found.end() if found else at


def _csv_rows(file: _File, adapt: Adapt) -> Iterator[SuiteItem | LineProblem]:
    number = 1

    def text(line: tuple[int, str | None]) -> str:
        nonlocal number
        number = line[0]
        if line[1] is None:
            raise csv.Error(_TOO_LONG)
        return line[1]

    lines = file.lines()
    mark, told = csv_mark(file.head.removeprefix(BOM_UTF8).decode(errors="replace"))
    if told:
        next(lines)
    reader = csv.DictReader(map(text, lines), delimiter=mark, strict=True)
    try:
        columns = reader.fieldnames or []
    except csv.Error as error:
        yield LineProblem(1, f"the header is not valid CSV ({error})")
        return
    if not {"prompt", "turns"} & {name.strip().lower() for name in adapt(dict.fromkeys(columns, "?"))}:
        found = ", ".join(columns)[:MAX_NAME] or "none"
        hint = next(filter(None, (meant(name, ("prompt", "turns")) for name in columns)), "")
        yield LineProblem(1, f"the header needs a column 'prompt' (or 'turns'); {hint}it has: {found}")
        return
    while True:
        try:
            yield item_of(adapt(next(reader)), number)
        except StopIteration:
            return
        except csv.Error as error:
            yield LineProblem(number, f"not valid CSV ({error})")


_FORMS = {
    **dict.fromkeys((".jsonl", ".ndjson"), (_json_lines, "one JSON object with 'prompt' per line")),
    ".json": (_json_values, "a list of JSON objects with 'prompt'"),
    ".csv": (_csv_rows, "a header with a column 'prompt', and one prompt per row"),
}
"""By the end of a file's name, what reads it and what it needs."""


def item_of(row: Row, line: int) -> SuiteItem | LineProblem:
    """The prompt of a row, or what is wrong with it; its keys count in any case."""
    row = {**{str(name).strip().lower(): value for name, value in row.items()}, **row}
    prompt, turns, which = row.get("prompt"), row.get("turns"), "'prompt'"
    if prompt is None and turns == []:
        return LineProblem(line, "'turns' is empty")
    if prompt is None and turns:
        if isinstance(turns, str) and turns.lstrip().startswith("["):
            try:
                turns = json.loads(turns)
            except (ValueError, RecursionError):
                return LineProblem(line, "'turns' is not a valid JSON list")
        several = isinstance(turns, list)
        prompt, which = (next(iter(turns), None), "the first of 'turns'") if several else (turns, "'turns'")
    body = row.get("body")  # a line of OpenAI's batch files
    messages = (body if isinstance(body, dict) else row).get("messages")
    if prompt is None and messages is not None:
        try:
            prompt = _first_turn(messages)
        except (TypeError, KeyError):
            return LineProblem(line, "'messages' is not a list of objects with 'role' and 'content' (text)")
        if prompt is None:
            return LineProblem(line, "'messages' has none of the role 'user'")
    if prompt is None:
        has = ", ".join(map(str, row))[:MAX_NAME] or "nothing"
        hint = next(filter(None, (meant(str(name), ("prompt", "turns", "messages")) for name in row)), "")
        needs = f"needs 'prompt' (text), 'turns' (a list of texts) or OpenAI's 'messages'; {hint}it has: {has}"
        return LineProblem(line, needs)
    if not isinstance(prompt, str):
        return LineProblem(line, f"{which} is {_KINDS.get(type(prompt), 'a number')}; it must be text")
    if not prompt.strip():
        return LineProblem(line, "the prompt is empty")
    identity = next((row[key] for key in ("question_id", "id", "custom_id") if row.get(key) not in (None, "")), line)
    task = next((row[key] for key in ("category", "task") if row.get(key)), "")
    item = SuiteItem(str(identity), prompt, str(task))
    if max(len(item.id), len(item.task)) > MAX_NAME:
        return LineProblem(line, f"the id or the task has more than {MAX_NAME} characters")
    try:
        f"{item.id}{item.prompt}{item.task}".encode()
    except UnicodeEncodeError:
        return LineProblem(line, "holds half of a character (a lone surrogate such as \\ud83d)")
    return item


def _first_turn(messages: Any) -> str | None:
    """The user's first text below the system's before it, in OpenAI's form or ShareGPT's; ``None`` without one."""
    texts = []
    for message in messages:
        role, content = (message[key] for key in (("role", "content") if "role" in message else ("from", "value")))
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        if role in ("system", "developer", "user", "human"):
            texts.append(text)
        if role in ("user", "human"):
            return "\n\n".join(texts)
    return None


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"
