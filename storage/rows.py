"""A finished generation and what is known of its run → the rows of the tables ``runs`` and ``rounds``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, get_args

FEWEST_TOKENS = 8
"""Tokens that an answer needs for a speed-up. That of a shorter one would tell how long one or two steps happened to
take, and nothing about who drafted; how fast the machine is makes no difference to that."""

Source = Literal["play", "race", "batch", "bench", "api"]


class RoundLike(Protocol):
    """What is read of a round; ``multidraft.records.Round`` documents each attribute."""

    @property
    def index(self) -> int: ...
    @property
    def arm(self) -> int | None: ...
    @property
    def drafter(self) -> str | None: ...
    @property
    def drafted(self) -> Sequence[int]: ...
    @property
    def accepted(self) -> int: ...
    @property
    def tokens(self) -> Sequence[int]: ...
    @property
    def own(self) -> int | None: ...
    @property
    def pieces(self) -> Sequence[str]: ...
    @property
    def draft_length(self) -> int: ...
    @property
    def reward(self) -> float | None: ...
    @property
    def block_divergence(self) -> float | None: ...
    @property
    def probabilities(self) -> Sequence[float] | None: ...
    @property
    def draft_seconds(self) -> float: ...
    @property
    def verify_seconds(self) -> float: ...
    @property
    def policy_seconds(self) -> float: ...
    @property
    def evaluate_seconds(self) -> float: ...


class GenerationLike(Protocol):
    """What is read of a generation; ``multidraft.records.Generation`` documents each attribute."""

    @property
    def prompt(self) -> str: ...
    @property
    def policy(self) -> str: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def text(self) -> str: ...
    @property
    def rounds(self) -> Sequence[RoundLike]: ...
    @property
    def status(self) -> str: ...
    @property
    def error(self) -> str | None: ...
    @property
    def prefill_seconds(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def tokens_per_second(self) -> float: ...
    @property
    def mean_accepted_tokens(self) -> float: ...
    @property
    def acceptance_rate(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What a run's record needs beside the generation itself.

    Attributes:
        source: where the run came from.
        pool: the pool's name.
        card_hash: hash of the pool's card.
        parameters: all sampling parameters by name; ``temperature``, ``max_new_tokens`` and ``draft_length``
            become columns as well.
        seed: the run's seed.
        hardware: the device, in words.
        dtype: the target's number type.
        version: version of the code.
        task: the prompt's task, where it is known.
        suite: the suite that the prompt belongs to.
        batch_id: common to the runs of one batch or benchmark.
        baseline_tokens_per_second: plain decoding of the same prompt on the same machine.
        regret_rounds: rounds more than the best fixed drafter needs.
        expected_regret: of a sampled run, expected loss above that of the best fixed drafter (HedgeSpec §3.2).
        best_arm: that drafter's name.
        best_arm_ratio: share of the rounds that played it, in [0, 1].
        drafter_rounds: rounds that each drafter alone would have needed for the same text, by name.
        acceptance: the acceptance table of the run, uint8 ``(drafters, output positions)``, zlib-compressed.
        lossless: whether the output is what plain decoding writes; ``None`` where it was not compared.
    """

    source: Source
    pool: str
    card_hash: str
    seed: int
    hardware: str
    dtype: str
    version: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    task: str | None = None
    suite: str | None = None
    batch_id: str | None = None
    baseline_tokens_per_second: float | None = None
    regret_rounds: float | None = None
    expected_regret: float | None = None
    best_arm: str | None = None
    best_arm_ratio: float | None = None
    drafter_rounds: Mapping[str, int] | None = None
    acceptance: bytes | None = None
    lossless: bool | None = None

    def __post_init__(self) -> None:
        if self.source not in get_args(Source):
            raise ValueError(f"source must be one of {', '.join(get_args(Source))}, got {self.source!r}")


@dataclass(frozen=True)
class RunRows:
    """The row of ``runs`` and those of ``rounds`` (these without ``run_id``, which the insert assigns)."""

    run: dict[str, Any]
    rounds: list[dict[str, Any]]


def to_rows(generation: GenerationLike, context: RunContext, now: datetime | None = None) -> RunRows:
    """Copy all that is stored, so that the caller may go on changing its objects.

    ``now`` (UTC) becomes ``created_at``. Speed-up (:func:`speedup`) is against ``context.baseline_tokens_per_second``.
    """
    rounds = generation.rounds
    baseline = context.baseline_tokens_per_second
    speed = generation.tokens_per_second
    run = {
        "created_at": utc_text(now or datetime.now(UTC)),
        "source": context.source,
        "batch_id": context.batch_id,
        "suite": context.suite,
        "prompt": generation.prompt,
        "task": context.task,
        "pool": context.pool,
        "card_hash": context.card_hash,
        "policy": generation.policy,
        "parameters": _json({key: _plain(value) for key, value in context.parameters.items()}),
        "temperature": context.parameters.get("temperature"),
        "max_new_tokens": context.parameters.get("max_new_tokens"),
        "draft_length": context.parameters.get("draft_length"),
        "seed": context.seed,
        "hardware": context.hardware,
        "dtype": context.dtype,
        "version": context.version,
        "output": generation.text,
        "status": generation.status,
        "error": generation.error,
        "prompt_tokens": generation.prompt_tokens,
        "output_tokens": len(generation.token_ids),
        "rounds": len(rounds),
        "prefill_seconds": generation.prefill_seconds,
        "decode_seconds": generation.seconds,
        "draft_seconds": sum(r.draft_seconds for r in rounds),
        "verify_seconds": sum(r.verify_seconds for r in rounds),
        "policy_seconds": sum(r.policy_seconds for r in rounds),
        "evaluate_seconds": sum(r.evaluate_seconds for r in rounds),
        "tokens_per_second": speed,
        "mean_accepted_tokens": generation.mean_accepted_tokens,
        "acceptance_rate": generation.acceptance_rate if any(r.drafted for r in rounds) else None,
        "baseline_tokens_per_second": baseline,
        "speedup": speedup(len(generation.token_ids), speed, baseline),
        "regret_rounds": context.regret_rounds,
        "expected_regret": context.expected_regret,
        "best_arm": context.best_arm,
        "best_arm_ratio": context.best_arm_ratio,
        "drafter_rounds": None if context.drafter_rounds is None else _json(dict(context.drafter_rounds)),
        "acceptance": context.acceptance,
        "lossless": context.lossless,
        "best_arm_rounds": None if context.best_arm is None else _best_arm_rounds(rounds, context.best_arm),
        "piece_lengths": _json([len(piece) for r in rounds for piece in r.pieces]),
    }
    return RunRows(_storable(run), [_storable(_round_row(r)) for r in rounds])


def speedup(tokens: int, tokens_per_second: float | None, baseline: float | None) -> float | None:
    """How many times as fast as plain decoding an answer of so many tokens was written.

    ``None`` where either speed is not known, and for answers of fewer than ``FEWEST_TOKENS``: too short to say.
    """
    if not tokens_per_second or not baseline or tokens < FEWEST_TOKENS:
        return None
    return tokens_per_second / baseline


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC with microseconds always shown, so that text order is time order; naive means UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _best_arm_rounds(rounds: Sequence[RoundLike], best: str) -> str:
    """A character per round: ``1`` played the best arm, ``0`` another, ``-`` none."""
    return "".join("-" if r.drafter is None else "1" if r.drafter == best else "0" for r in rounds)


def _round_row(r: RoundLike) -> dict[str, Any]:
    return {
        "round_index": r.index,
        "arm": r.arm,
        "drafter": r.drafter,
        "drafted": len(r.drafted),
        "accepted": r.accepted,
        "emitted": len(r.tokens),
        "own_token": r.own,
        "drafted_ids": _json([_plain(token) for token in r.drafted]),
        "token_ids": _json([_plain(token) for token in r.tokens]),
        "draft_length": r.draft_length,
        "reward": r.reward,
        "block_divergence": r.block_divergence,
        "probabilities": None if r.probabilities is None else _json([_plain(p) for p in r.probabilities]),
        "draft_seconds": r.draft_seconds,
        "verify_seconds": r.verify_seconds,
        "policy_seconds": r.policy_seconds,
        "evaluate_seconds": r.evaluate_seconds,
    }


def _storable(row: dict[str, Any]) -> dict[str, Any]:
    return {column: _plain(value) for column, value in row.items()}


def _plain(value: Any) -> Any:
    """Numbers of numpy or torch as Python's own; what neither SQLite nor JSON can hold replaced."""
    if isinstance(value, str):
        return _encodable(value)
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _encodable(text: str) -> str:
    """UTF-8 has no lone surrogates: pairs become their character, others U+FFFD. NUL is kept."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)
