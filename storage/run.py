"""A run: a generation with what is known of how it was made and what came of it.

Engine, page, history, replay, API and exports share this record; :meth:`Run.to_json` is its one form as plain values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from statistics import median
from typing import Any, Literal, get_args

import numpy as np
from pydantic import TypeAdapter

from drafters.base import Acceptances
from drafters.sampling import SamplingParams
from drafters.traffic import Lesson
from storage import figures
from storage.clock import FEWEST_BLOCKS, stalled, uncertainty
from storage.records import PHASES, Generation

Source = Literal["play", "race", "batch", "bench", "api", "command", "vllm", "spec-bench", "specdec_bench", "aiperf"]
"""Where a run was started, or whose file it was imported from."""

IMPORTED: tuple[Source, ...] = ("spec-bench", "specdec_bench", "aiperf")
"""The sources that are other programs' files."""

BaselineKind = Literal["answer", "prefix"]


@dataclass(frozen=True)
class Baseline:
    """Autoregressive decoding of the same prompt with the same parameters, which the run's speed is compared with.

    Attributes:
        kind: what was decoded: the whole ``"answer"``, or a ``"prefix"`` of it, its first tokens; those take less each
            than later ones, which read a longer context.
        tokens: how many it emitted.
        seconds_per_token: decoding only; the mean over an answer, the median over a prefix, where a single slow
            step would weigh too much.
        uncertainty: half the width of the 95 % interval of ``seconds_per_token``, as a share of it
            (:func:`~storage.clock.uncertainty`); of a median also how far it lies from the mean. ``None`` is unknown.
    """

    kind: BaselineKind
    tokens: int
    seconds_per_token: float
    prefill_seconds: float
    uncertainty: float | None = None

    @classmethod
    def of(cls, generation: Generation, kind: BaselineKind) -> Baseline:
        """The baseline that an autoregressive generation of at least one round makes."""
        rounds, tokens = generation.rounds, len(generation.token_ids)
        mean = generation.seconds / tokens
        each = mean if kind == "answer" else median(r.seconds for r in rounds)
        known = generation.uncertainty
        off = uncertainty(generation.forwards, FEWEST_BLOCKS) if known is None else known
        if off is not None and each:
            off = math.hypot(off, mean / each - 1.0)
        return cls(kind, tokens, each, generation.prefill_seconds, off)

    @property
    def tokens_per_second(self) -> float:
        return 1.0 / self.seconds_per_token

    def decode_seconds(self, tokens: int) -> float:
        return tokens * self.seconds_per_token

    def request_seconds(self, tokens: int) -> float:
        """What a request for so many tokens takes: prefill and decoding."""
        return self.prefill_seconds + self.decode_seconds(tokens)


@dataclass(frozen=True)
class Conditions:
    """What runs must have in common for their speeds to be comparable.

    Attributes:
        hardware: the device, in words.
        dtype: of the target's weights, and of quantised drafters how.
        version: of this code.
        libraries: versions of Python and of the libraries that compute, by name.
    """

    pool: str
    card_hash: str
    hardware: str
    dtype: str
    version: str
    libraries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """Where a run comes from.

    Attributes:
        task, suite: of the prompt, where they are known; ``prompt_id`` is what the suite calls it.
        batch_id: common to the runs of one batch, race or benchmark.
        learn: whether drafters and policies may learn from it; who asked for the run says so.
    """

    source: Source
    task: str | None = None
    suite: str | None = None
    batch_id: str | None = None
    learn: bool = True
    prompt_id: str | None = None

    def __post_init__(self) -> None:
        if self.source not in get_args(Source):
            raise ValueError(f"source must be one of {', '.join(get_args(Source))}, got {self.source!r}")


@dataclass(frozen=True, eq=False)
class Scores:
    """What is found out about a run after it ended, off the clock; ``None`` is unknown.

    Attributes:
        lossless: whether the output is the target's own greedy one, near-ties decided by rounding apart.
        near_tie_gap: the largest gap between the logits of two tokens where rounding decided otherwise.
        regret_rounds: rounds played minus those that the best fixed drafter needs for the same text (greedy runs).
        expected_regret: expected loss above that of the best fixed drafter (sampled runs; HedgeSpec §3.1).
        best_drafter: that drafter's name.
        best_arm_ratio: share of the rounds with a drafter that played it, or in greedy runs one that needs as few.
        drafter_rounds: by drafter, the rounds that it alone would need for the same text.
        acceptance: the drafts that were possible in a greedy run, ``(drafters, output positions)``, from which any
            policy can be replayed.
        suitability: how well each drafter suits each stretch of the text, which later queries learn from
            (:func:`~drafters.traffic.suitability`); of older runs one list, for the stretch that suits it best.
    """

    lossless: bool | None = None
    near_tie_gap: float | None = None
    regret_rounds: float | None = None
    expected_regret: float | None = None
    best_drafter: str | None = None
    best_arm_ratio: float | None = None
    drafter_rounds: Mapping[str, int] | None = None
    acceptance: Acceptances | None = None
    suitability: Lesson | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scores):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))


@dataclass(frozen=True)
class Reported:
    """What another program's file tells of a run, whose rounds it does not have; ``None`` is unknown.

    Attributes:
        round_count: steps of the target; 0 is unknown.
        request_seconds: of the whole request, or of all requests that were reported as one.
    """

    output_tokens: int
    round_count: int = 0
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    request_seconds: float | None = None


@dataclass
class Run:
    """A generation and all that is known of it.

    Attributes:
        baseline: ``None`` where it was not measured.
        created_at: when the run began, or was asked for (UTC).
        id: its number in the history; ``None`` until it is stored.
        reported: of an imported run, its figures; those that need rounds are unknown, and so are its parameters.
    """

    generation: Generation
    params: SamplingParams
    seed: int
    conditions: Conditions
    origin: Origin
    baseline: Baseline | None = None
    scores: Scores = field(default_factory=Scores)
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    id: int | None = None
    reported: Reported | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Rate of decoding; ``None`` where the text was decoded beside others, since its rounds held theirs too."""
        alone = self.generation.streams == 1 and not self.reported
        return self.generation.tokens_per_second if alone else None

    @property
    def speedup(self) -> float | None:
        """Decode speed-up: how many times as fast as the baseline it was decoded (``figures.speedup``)."""
        return self._speedup(self.baseline.decode_seconds, self.generation.seconds) if self.baseline else None

    @property
    def request_speedup(self) -> float | None:
        """Speed-up of the whole request: prefill of target and drafters, routing and first decision included."""
        return self._speedup(self.baseline.request_seconds, self.generation.request_seconds) if self.baseline else None

    def _speedup(self, baseline_seconds: Callable[[int], float], seconds: float) -> float | None:
        tokens = len(self.generation.token_ids)
        return figures.speedup(tokens, baseline_seconds(tokens), seconds)

    @property
    def speedup_uncertainty(self) -> float | None:
        """Half the width of the 95 % interval of the decode speed-up, as a share of it, by how far the forwards of the
        run and of its baseline strayed; 0 for the run that is the baseline, ``None`` is unknown."""
        if self.speedup and math.isclose(self.speedup, 1.0, rel_tol=1e-9):
            return 0.0
        base, seconds = self.baseline, self.generation.seconds
        if base is None or base.uncertainty is None or not seconds:
            return None
        off = self.generation.uncertainty
        if off is None:  # in few rounds the machine was as noisy as during the baseline, for as long as they took
            off = base.uncertainty * math.sqrt(max(base.decode_seconds(base.tokens) / seconds, 1.0))
            off = math.hypot(off, stalled(self.generation.forwards) / seconds)
        return math.hypot(off, base.uncertainty)

    def to_json(self) -> dict[str, Any]:
        """All fields as plain values in one flat object, and the figures that follow from them.

        The keys are the names of the fields; those of the baseline begin with ``baseline_``. ``rounds`` is a list of
        objects with the fields of :class:`~storage.records.Round`. It shares nothing with the run.
        """
        flat: dict[str, Any] = {"id": self.id, "created_at": self.created_at, "seed": self.seed}
        for part in (self.origin, self.conditions, self.params, self.generation, self.scores):
            flat |= vars(part)
        flat["rounds"] = [vars(r) for r in self.generation.rounds]
        flat |= self.derived
        if self.reported:
            flat |= self._as_reported(self.reported)
        return {name: plain(value) for name, value in flat.items()}

    @property
    def derived(self) -> dict[str, Any]:
        """What follows from its rounds, and its baseline, under the keys of :meth:`to_json`."""
        g = self.generation
        return {
            **{f"baseline_{f.name}": getattr(self.baseline, f.name, None) for f in fields(Baseline)},
            **{f"{phase}_seconds": sum(getattr(r, f"{phase}_seconds") for r in g.rounds) for phase in PHASES},
            "output_tokens": len(g.token_ids),
            "round_count": len(g.rounds),
            "chosen_rounds": sum(r.arm is not None for r in g.rounds),
            "drafted_tokens": sum(len(r.drafted) for r in g.rounds),
            "accepted_tokens": sum(r.accepted for r in g.rounds),
            "decode_seconds": g.seconds,
            "request_seconds": g.request_seconds,
            "tokens_per_second": self.tokens_per_second,
            "mean_accepted_tokens": g.mean_accepted_tokens,
            "acceptance_rate": g.acceptance_rate if any(r.drafted for r in g.rounds) else None,
            "drafter_shares": g.drafter_shares,
            "speedup": self.speedup,
            "speedup_uncertainty": self.speedup_uncertainty,
            "request_speedup": self.request_speedup,
        }

    def _as_reported(self, found: Reported) -> dict[str, Any]:
        """The fields that are otherwise than those of a run with rounds: the figures told, and what is unknown."""
        return {
            **dict.fromkeys(_NOT_REPORTED),
            **{f.name: getattr(self.conditions, f.name) or None for f in fields(Conditions)},
            **{f.name: getattr(found, f.name) for f in fields(Reported)},
            "prompt_tokens": self.generation.prompt_tokens or None,
            "mean_accepted_tokens": figures.divided(found.output_tokens, found.round_count),
            "acceptance_rate": figures.divided(found.accepted_tokens or 0, found.drafted_tokens or 0),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Run:
        """The run that :meth:`to_json` made ``values`` of; what is not a field, such as figures, is passed over.

        Raises:
            KeyError: a field is missing.
        """
        tables = values["acceptance"]
        if tables is not None:
            tables = Acceptances(*(np.array(tables[name], dtype=np.int64) for name in Acceptances._fields))
        values = {**values, "acceptance": tables}
        reported = None

        def part(kind: type[Any], prefix: str = "") -> Any:
            return kind(**{f.name: values[prefix + f.name] for f in fields(kind) if prefix + f.name in values})

        if values["source"] in IMPORTED:
            reported = part(Reported)
            usual = {f.name: f.default for f in fields(SamplingParams)}
            empty = {**usual, "seed": 0, "prompt_tokens": 0, "prefill_seconds": 0.0, **_NO_CONDITIONS}
            values |= {name: value for name, value in empty.items() if values[name] is None}

        return cls(
            _GENERATION.validate_python({f.name: values[f.name] for f in fields(Generation)}),
            part(SamplingParams),
            values["seed"],
            part(Conditions),
            part(Origin),
            None if values["baseline_kind"] is None else part(Baseline, "baseline_"),
            part(Scores),
            datetime.fromisoformat(values["created_at"]),
            values["id"],
            reported,
        )


_GENERATION = TypeAdapter(Generation)
"""Makes tuples of lists, and rounds of objects."""

_NOT_REPORTED = (
    *(f.name for f in fields(SamplingParams)),
    *(f"{phase}_seconds" for phase in (*PHASES, "prefill", "decode")),
    *("seed", "chosen_rounds"),
)
"""What imported runs do not tell."""

_NO_CONDITIONS = {"pool": "", "card_hash": "", "hardware": "", "dtype": "", "version": "", "libraries": {}}


def plain(value: Any) -> Any:
    """``value`` as plain Python, copied: numbers of numpy and torch as Python's own, arrays and tuples as lists.

    Infinities and NaN become ``None``, and lone surrogates in texts U+FFFD: neither JSON nor UTF-8 has them.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if hasattr(value, "_asdict"):  # a named tuple
        value = value._asdict()
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return utc_text(value)
    if hasattr(value, "tolist"):  # an array or number of numpy or torch
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC, always with microseconds, so that the order of texts is that of time; naive means UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
