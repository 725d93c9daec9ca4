"""Runs from the files of other tools, :data:`KNOWN`.

They become runs with :class:`~storage.run.Reported` figures: without rounds they have no regret, no replays and no
share in the charts of time. A file is read as a whole or, where anything in it is wrong, not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from drafters.errors import UserError, fault_message
from drafters.sampling import SamplingParams
from storage.connection import is_database, read_rows
from storage.deletion import deleted
from storage.problems import StorageError
from storage.records import Generation
from storage.rows import prompt_of
from storage.run import Conditions, Origin, Reported, Run, Source, utc_text
from storage.store import Store

KNOWN = (
    "answers of Spec-Bench (.jsonl), acceptance_rate.json or timing.json of specdec_bench, or profile_export.jsonl or "
    "profile_export_aiperf.json of AIPerf"
)

OWN_EXPORT = (
    "this is multidraft's own export, which is for other programs; `multidraft restore runs.db --db other.db` adds the "
    "runs of one history to another"
)

MAX_BYTES = 20 * 2**20
"""Of a file that is read."""

LARGEST = 2**62
"""Numbers that the database can hold: times in nanoseconds are not far from it."""

Count = Annotated[int, Field(ge=0, le=LARGEST)]
Share = Annotated[float, Field(ge=0, le=1.000001, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]

WRITING_SECONDS = 60.0
"""How long it is waited for the runs of a file to be written."""


class ImportedBefore(UserError):
    """A file whose runs the history has."""


class _Form(BaseModel):
    """What is read of an object; other fields are passed over."""

    model_config = ConfigDict(coerce_numbers_to_str=True)


class _Choice(_Form):
    turns: list[str]
    decoding_steps: list[Count] = []
    new_tokens: list[Count] = Field(min_length=1)
    wall_time: list[Amount]
    accept_lengths: list[Count] = []


class _Answer(_Form):
    question_id: str
    category: str = ""
    model_id: str
    choices: list[_Choice] = Field(min_length=1)
    tstamp: Amount | None = None

    def runs(self) -> Iterator[Run]:
        """One for each choice."""
        for number, choice in enumerate(self.choices):
            steps = len(choice.accept_lengths) or sum(choice.decoding_steps)
            found = Reported(sum(choice.new_tokens), steps, request_seconds=sum(choice.wall_time) or None)
            prompt, text = f"Question {self.question_id}", "\n\n".join(choice.turns)
            ended = None if self.tstamp is None else self.tstamp + number * 1e-5  # runs are told apart by their times
            yield _run("spec-bench", self.model_id, found, prompt, text, task=self.category, ended=ended)


class _Acceptance(_Form):
    histogram: dict[Annotated[int, Field(ge=1, le=LARGEST)], Count] = Field(alias="Acceptance_Length_Histogram")
    requests: dict[str, dict[str, Amount]] = Field(validation_alias=AliasChoices("Request_AL", "Request_AR"))
    mean: Amount = Field(validation_alias=AliasChoices("Average_AL", "Average_AR"))
    conditional: dict[str, Share] = Field({}, alias="Conditional_Acceptance_Rate")
    joint: dict[str, Share] = Field({}, alias="Joint_Acceptance_Rate")
    categories: dict[str, Amount] = Field({}, validation_alias=AliasChoices("Category_AL", "Category_AR"))

    def runs(self) -> Iterator[Run]:
        """All requests as one run: of single ones the file has no counts."""
        tokens = sum(length * steps for length, steps in self.histogram.items())
        found = Reported(tokens, sum(self.histogram.values()))
        yield _run("specdec_bench", "specdec_bench", found, f"Acceptance of {len(self.requests)} requests")


class _Mean(_Form):
    mean: Amount


class _Timing(_Form):
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(alias="Output TPS")
    request: _Mean = Field(alias="E2E Request Time")
    tokens: _Mean = Field(alias="Number of Output Tokens")

    def runs(self) -> Iterator[Run]:
        """A run that stands for the mean request."""
        found = Reported(round(self.tokens.mean), request_seconds=self.request.mean)
        yield _run(
            "specdec_bench", "specdec_bench", found, prompt=f"The mean request, at {self.rate:.1f} tokens/s in all"
        )


class _Value(_Form):
    amount: Amount = Field(validation_alias=AliasChoices("value", "avg"))
    unit: str = ""

    @property
    def number(self) -> float:
        """In seconds, or whatever else it counts."""
        return self.amount * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}.get(self.unit, 1.0)


class _Metadata(_Form):
    conversation_id: str | None = None
    session_num: Count = 0
    turn_index: Count | None = None
    request_end_ns: Count | None = None
    benchmark_phase: str = "profiling"


class _Metrics(_Form):
    latency: _Value | None = Field(None, alias="request_latency")
    read: _Value | None = Field(None, alias="input_sequence_length")
    tokens: _Value = Field(alias="output_sequence_length")
    drafted: _Value | None = Field(None, alias="spec_decode_draft_tokens")
    accepted: _Value | None = Field(None, alias="spec_decode_accepted_draft_tokens")
    steps: _Value | None = Field(None, alias="spec_decode_steps")


class _Record(_Form):
    metadata: _Metadata
    metrics: _Metrics
    error: Any = None

    def runs(self) -> Iterator[Run]:
        """One, unless it was of the warm-up or failed."""
        about, found = self.metadata, self.metrics
        if about.benchmark_phase == "profiling" and not self.error:
            name, turn = about.conversation_id or str(about.session_num), about.turn_index or 0
            prompt, ended = f"Conversation {name}, turn {turn + 1}", about.request_end_ns
            seconds = found.latency.number if found.latency else None
            yield _aiperf(found, prompt, seconds, ended / 1e9 if ended else None)


class _Summary(_Form):
    version: str = Field(alias="aiperf_version")
    count: _Value = Field(alias="request_count")
    latency: _Value = Field(alias="request_latency")
    tokens: _Value = Field(alias="total_osl")
    drafted: _Value | None = Field(None, alias="total_draft_tokens")
    accepted: _Value | None = Field(None, alias="total_accepted_draft_tokens")
    steps: _Value | None = Field(None, alias="total_spec_decode_steps")
    read: None = None

    def runs(self) -> Iterator[Run]:
        """All requests as one run."""
        seconds = self.count.number * self.latency.number
        yield _aiperf(self, f"{self.count.number:.0f} requests of AIPerf {self.version}", seconds, None)


def _aiperf(found: _Metrics | _Summary, prompt: str, seconds: float | None, ended: float | None) -> Run:
    """Each round writes one token of the target's own, so there are as many as tokens that were no accepted drafts; but
    for one that a draft has ended, so no fewer than those that drafted something."""
    tokens, counts = int(found.tokens.number), (found.drafted, found.accepted, found.steps)
    drafted, accepted, steps = (None if count is None else int(count.number) for count in counts)
    rounds = 0 if accepted is None else max(steps or 0, tokens - accepted)
    reported = Reported(tokens, rounds, drafted, accepted, seconds)
    read = 0 if found.read is None else int(found.read.number)
    return _run("aiperf", "aiperf", reported, prompt, ended=ended, prompt_tokens=read)


KINDS: dict[str, type[_Answer | _Acceptance | _Timing | _Record | _Summary]] = {
    "accept_lengths": _Answer,
    "decoding_steps": _Answer,
    **dict.fromkeys(("Acceptance_Length_Histogram", "Request_AL", "Request_AR"), _Acceptance),
    "Output TPS": _Timing,
    "metadata": _Record,
    "aiperf_version": _Summary,
}
"""What an object is, by a key that only it has."""


def import_file(file: str | Path, store: Store, name: str = "") -> int:
    """Add the runs of a file of another tool to the history, all of them or none; returns how many.

    Args:
        name: what did the decoding; by default as the file says, which most do not.

    Raises:
        UserError: it is none of these files, or something in it is wrong.
        ImportedBefore: it was, whatever its name was or ``name``.
        StorageError: the history cannot be written.
    """
    file = Path(file)
    content = _content(file)
    digest = blake2b(content.encode(), digest_size=4).hexdigest()
    same = "SELECT suite, policy FROM runs WHERE suite LIKE ? LIMIT 1"
    if before := read_rows(store.path, same, [f"% #{digest}"]):
        suite, policy = before[0]
        raise ImportedBefore(f"{file.name} was imported before: the history has it as {suite}, by {policy!r}")
    runs = [run for where, value in _objects(file, content) for run in _runs_of(where, value)]
    if not runs:
        raise UserError(f"{file.name} holds no finished request; nothing was imported")
    gone = deleted(store.path)
    for run in runs:
        run.origin = replace(run.origin, suite=f"{file.name} #{digest}")
        run.generation.policy = name.strip() or run.generation.policy
        if (run.generation.policy, utc_text(run.created_at), prompt_of(run.generation)) in gone:
            raise UserError(f"{file.name} was imported before and deleted, for good; nothing was imported")
    if not store.add(*runs).wait(WRITING_SECONDS):
        raise StorageError(store.problem or f"{store.path} could not be written")
    return len(runs)


def _content(file: Path) -> str:
    if file.suffix.lower() == ".zip":
        raise UserError(f"{file.name} is an archive: unpack it and import the files in it; name {KNOWN}")
    try:
        if is_database(file):
            raise UserError(f"{file.name} is a database: the runs of a history are added by `restore`, not imported")
        if (size := file.stat().st_size) > MAX_BYTES:
            raise UserError(f"{file.name} has {size / 2**20:.0f} MB; {MAX_BYTES >> 20} MB can be read: split the file")
        return file.read_text("utf-8-sig")
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); name {KNOWN}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file.name} is not UTF-8 text (byte {error.start}); name {KNOWN}") from None


def _objects(file: Path, content: str) -> Iterator[tuple[str, Any]]:
    """The objects of a file, and where they are."""
    if file.suffix.lower() in (".jsonl", ".ndjson"):
        for number, line in enumerate(content.split("\n"), start=1):
            if line.strip():
                where = f"{file.name}, line {number}"
                yield where, _json(line, where)
        return
    values = _json(content, file.name)
    if isinstance(values, list):
        yield from ((f"{file.name}, entry {number}", value) for number, value in enumerate(values, start=1))
    else:
        yield file.name, values


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not valid JSON ({error}); name {KNOWN}") from None


def _runs_of(where: str, value: Any) -> list[Run]:
    choices = value.get("choices") if isinstance(value, dict) else None
    inside = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    keys = {**inside, **value} if isinstance(value, dict) else {}
    kind = next((kind for key, kind in KINDS.items() if key in keys), None)
    if kind is None and "card_hash" in keys:
        raise UserError(f"{where}: {OWN_EXPORT}; nothing was imported")
    if kind is None:
        found = f"its fields are {', '.join(map(str, list(keys)[:8]))}" if keys else "it is no object with fields"
        raise UserError(
            f"{where}: none of the files that can be read, which are {KNOWN}: {found}, but none of {', '.join(KINDS)}; "
            "nothing was imported"
        )
    try:
        return list(kind.model_validate(value).runs())
    except ValidationError as error:
        raise UserError(f"{where}: {fault_message(error.errors()[0])}; nothing was imported") from None
    except (ValueError, OverflowError, OSError) as error:
        raise UserError(f"{where}: {error}; nothing was imported") from None


def _run(
    source: Source,
    policy: str,
    found: Reported,
    prompt: str,
    text: str = "",
    *,
    task: str = "",
    ended: float | None = None,
    prompt_tokens: int = 0,
) -> Run:
    if max(found.output_tokens, found.round_count) > LARGEST:
        raise ValueError("its tokens or steps add up to more than the history can hold")
    generation = Generation(prompt, policy, (), prompt_tokens, text=text, status="completed")
    created = (
        datetime.now(UTC) if ended is None else datetime.fromtimestamp(ended - (found.request_seconds or 0.0), UTC)
    )
    made = Conditions(source, "", "", "", "")
    return Run(generation, SamplingParams(), 0, made, Origin(source, task or None), created_at=created, reported=found)
