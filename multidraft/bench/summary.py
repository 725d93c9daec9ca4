"""Speed-ups of several runs, and the figures of a batch's runs by task and policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from operator import attrgetter
from typing import Any, TypeVar

from storage.aggregates import NO_TASK
from storage.figures import FEWEST_TO_TELL, FEWEST_TOKENS, Ratio, ratio_columns, ratio_of_totals, value_of_totals
from storage.records import FINISHED, PLAIN
from storage.rows import prompt_of
from storage.run import Run

T = TypeVar("T")

TOO_LONG = "too long"
"""Status of a prompt that does not fit the target's context window."""


@dataclass(frozen=True)
class Row:
    """The figures of one prompt under one policy, small enough to be retained.

    Attributes:
        id, task: as the suite gives them; of a run whose suite is unknown, its number.
        policy: its spec.
        status: a ``storage.records.Status``, or ``"too long"``.
        tokens, rounds: emitted tokens, and the rounds they took.
        seconds, request_seconds: of decoding, and of the whole request (prefill and routing included).
        baseline_seconds, baseline_request_seconds: what the baseline needs for as many tokens.
        tokens_per_second, mean_accepted_tokens: ``None`` where nothing was decoded.
        speedup, request_speedup: likewise, and for answers too short to compare (``storage.figures.speedup``).
        speedup_uncertainty: by what share they may be off (``storage.run.Run``).
        streams: how many texts were decoded at once. Where it is more than one, seconds hold the work for the others
            too: neither a rate nor a speed-up is made of them.
        lossless: whether the output is the target's own; ``near_tie_gap``: the largest gap of the logits where rounding
            decided otherwise.
        error: why nothing, or not all, was decoded, or which drafters failed.
        output: the text.
        prompt: tells prompts apart, as ``prompt_hash`` does in the history.
        repeated: whether it began with what past queries had taught, this very prompt among them.
        regret_rounds: rounds above those of the best single drafter (greedy runs).
        run: its number in the history, if it is there.
    """

    id: str
    task: str
    policy: str
    status: str
    tokens: int = 0
    rounds: int = 0
    seconds: float | None = None
    request_seconds: float | None = None
    baseline_seconds: float | None = None
    baseline_request_seconds: float | None = None
    tokens_per_second: float | None = None
    mean_accepted_tokens: float | None = None
    speedup: float | None = None
    request_speedup: float | None = None
    speedup_uncertainty: float | None = None
    streams: int = 1
    lossless: bool | None = None
    near_tie_gap: float | None = None
    error: str | None = None
    output: str = ""
    prompt: int = 0
    repeated: bool = False
    regret_rounds: float | None = None
    run: int | None = None

    @classmethod
    def of(cls, id: str, task: str, run: Run, *, too_long: bool = False) -> Row:
        """The row of a run that ended, or was refused as too long."""
        g = run.generation
        seen = g.prior is not None and g.prior.repeated
        named = {"id": run.id, "prompt_id": id, "task": task, "prompt_hash": prompt_of(g)}
        own = {**named, "error": g.error or g.failures or None, "repeated": seen}
        row = cls.recorded({**vars(g), **vars(run.scores), **run.derived, **own})
        return replace(row, status=TOO_LONG) if too_long else row

    @classmethod
    def recorded(cls, values: Mapping[str, Any]) -> Row:
        """The row of a run of the history (``storage.experiments.figures``)."""
        tokens, each = values["output_tokens"], values["baseline_seconds_per_token"]
        ran = values["round_count"] > 0
        baseline = None if each is None or not ran else tokens * each
        taken = ("policy", "status", "speedup", "request_speedup", "speedup_uncertainty", "streams", "near_tie_gap")
        return cls(
            **{name: values[name] for name in (*taken, "error", "regret_rounds")},
            id=values["prompt_id"] or str(values["id"]),
            run=values["id"],
            task=values["task"] or NO_TASK,
            tokens=tokens,
            rounds=values["round_count"],
            seconds=values["decode_seconds"] if ran else None,
            request_seconds=values["prefill_seconds"] + values["decode_seconds"] if ran else None,
            baseline_seconds=baseline,
            baseline_request_seconds=None if baseline is None else values["baseline_prefill_seconds"] + baseline,
            tokens_per_second=values["tokens_per_second"] or None,
            mean_accepted_tokens=values["mean_accepted_tokens"] or None,
            lossless=None if values["lossless"] is None else bool(values["lossless"]),
            output=values["text"],
            prompt=values["prompt_hash"],
            repeated=bool(values["repeated"]),
        )

    def as_json(self) -> dict[str, Any]:
        """Its fields as plain values; what tells prompts apart as text, since JSON's numbers have no 64 bits."""
        return {**asdict(self), "prompt": str(self.prompt)}

    @property
    def finished(self) -> bool:
        """Whether the run came to an end of its own."""
        return self.status in FINISHED


COLUMNS = [field.name for field in fields(Row)]
NUMBERS = [field.name for field in fields(Row) if "float" in str(field.type)]


def speedups(rows: Sequence[Row], fewest: int = 0) -> tuple[Ratio | None, Ratio | None]:
    """Decode and whole-request speed-up: ratios of totals over the rows long enough to compare; of less than ``fewest``
    prompts without an interval over them, so that the noise of their timings counts."""
    compared = [row for row in rows if row.speedup is not None]
    names = ("baseline_seconds", "seconds"), ("baseline_request_seconds", "request_seconds")
    decode, request = (_ratio(compared, *each, fewest) for each in names)
    off = [row.speedup_uncertainty for row in compared]
    return decode and decode.of_runs(off), request and request.of_runs(off)


def _ratio(rows: Sequence[Row], above: str, below: str, fewest: int = 0) -> Ratio | None:
    numerators, denominators = ([getattr(row, name) for row in rows] for name in (above, below))
    return _of_enough(ratio_of_totals(numerators, denominators, [row.prompt for row in rows]), fewest)


def value_of(rows: Sequence[Row], below: str) -> float | None:
    """Tokens ÷ what they took, ``"seconds"`` or ``"rounds"``: a ratio of totals in which each prompt counts once."""
    tokens, others = [row.tokens for row in rows], [getattr(row, below) for row in rows]
    return value_of_totals(tokens, others, [row.prompt for row in rows])


def _of_enough(ratio: Ratio | None, fewest: int) -> Ratio | None:
    """Without its interval where it is of less than ``fewest`` prompts."""
    return replace(ratio, low=None, high=None) if ratio and ratio.prompts < fewest else ratio


def grouped(rows: Sequence[T], *names: str) -> dict[Any, list[T]]:
    """Rows by one of their fields or more, in the order in which the values first appear."""
    key, found = attrgetter(*names), dict[Any, list[T]]()
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def prompts_of(rows: Sequence[Row]) -> dict[str, set[int]]:
    """Of each policy the prompts that it ran."""
    return {policy: {row.prompt for row in own} for policy, own in grouped(rows, "policy").items()}


def mean(rows: Sequence[Row], name: str) -> float:
    """The mean of a figure that all of them have."""
    return sum(getattr(row, name) for row in rows) / len(rows)


def compared(rows: Sequence[Row]) -> list[Row]:
    """The finished runs with a speed-up, on the prompts of which every policy with drafters has one: what policies are
    compared on, in verdicts and tables alike."""
    timed = [row for row in rows if row.finished and row.speedup is not None]
    ran = prompts_of(timed)
    drafting = [prompts for policy, prompts in ran.items() if policy != PLAIN] or list(ran.values())
    common = set.intersection(*drafting) if drafting else set()
    return [row for row in timed if row.prompt in common]


@dataclass(frozen=True)
class Figures:
    """The figures of the ``finished`` ones of some ``runs`` of a policy; ``None`` is unknown.

    Attributes:
        too_long: how many do not fit the context window.
        tokens_per_second, mean_accepted_tokens, speedup, request_speedup: ratios of totals.
        regret_rounds: the mean over prompts.
    """

    runs: int
    finished: int
    too_long: int
    tokens_per_second: float | None
    mean_accepted_tokens: float | None
    speedup: Ratio | None
    request_speedup: Ratio | None
    regret_rounds: Ratio | None

    @classmethod
    def of(cls, rows: Sequence[Row], on: Sequence[Row] | None = None, fewest: int = 0) -> Figures:
        """Of the runs of a policy; speeds and tokens per round are those ``on`` some of them, if they are given.
        Intervals are those of ``fewest`` prompts or more."""
        done = [row for row in rows if row.finished]
        taken = done if on is None else on
        timed = [row for row in taken if row.tokens_per_second is not None]
        rate, mat = value_of(timed, "seconds"), value_of(taken, "rounds")
        known = [row for row in taken if row.regret_rounds is not None]
        regrets = [row.regret_rounds for row in known if row.regret_rounds is not None]
        regret = _of_enough(ratio_of_totals(regrets, [1] * len(known), [row.prompt for row in known]), fewest)
        too_long = sum(row.status == TOO_LONG for row in rows)
        return cls(len(rows), len(done), too_long, rate, mat, *speedups(taken, fewest), regret)

    def as_json(self) -> dict[str, Any]:
        """Plain values, the ratios with their intervals in columns of their own; ``speedup_uncertainty`` is that of the
        runs where there is no interval (``storage.figures.Ratio``)."""
        flat: dict[str, Any] = {}
        for name, value in vars(self).items():
            flat |= ratio_columns(name, value) if name in RATIOS else {name: value}
        return {**flat, "speedup_uncertainty": self.speedup and self.speedup.uncertainty}


RATIOS = ("speedup", "request_speedup", "regret_rounds")
"""The figures that have an interval."""


def summarise(rows: Sequence[Row]) -> dict[tuple[str, str], Figures]:
    """The figures of each task and policy, on the prompts of the task as of :func:`overall`; of several tasks with
    intervals where there are ``FEWEST_TO_TELL`` prompts."""
    tasks = grouped(sorted(rows, key=attrgetter("task", "policy")), "task")
    fewest = FEWEST_TO_TELL if len(tasks) > 1 else 0
    return {(task, policy): of for task, own in tasks.items() for policy, of in overall(own, fewest).items()}


def overall(rows: Sequence[Row], fewest: int = 0) -> dict[str, Figures]:
    """The same of each policy over all tasks, on the prompts that they are :func:`compared` on; where they have none in
    common, on its own. Intervals are those of ``fewest`` prompts or more."""
    on = {id(row) for row in compared(rows)}
    return {
        policy: Figures.of(own, [row for row in own if id(row) in on] or None, fewest)
        for policy, own in grouped(rows, "policy").items()
    }


def short_rows(rows: Sequence[Row]) -> int:
    """How many finished runs are too short for a speed-up."""
    return sum(row.finished and row.tokens < FEWEST_TOKENS for row in rows)


def as_json(rows: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """The ``summary``, a line for each task and policy, and all ``rows`` as plain values; ``None`` is unknown."""
    summary = [{"task": task, "policy": policy, **f.as_json()} for (task, policy), f in summarise(rows).items()]
    return {"summary": summary, "rows": [row.as_json() for row in rows]}


def in_parts(count: int, parts: Sequence[int] = (20, 60, 120, 240)) -> list[range]:
    """The queries of a stream in parts that end at these numbers, or where it does."""
    ends = [end for end in parts if end < count] + [count]
    return [range(begin, end) for begin, end in zip([0, *ends], ends, strict=False) if end > begin]
