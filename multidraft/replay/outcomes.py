"""What replays of recorded texts say together: a policy's figures, its regret round by round, a setting swept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from drafters.errors import PolicyError, UserError
from multidraft.policies.specs import read_spec, settings_of, with_setting
from multidraft.replay.recorded import Recorded, Route
from multidraft.replay.regret import regret_by_round
from multidraft.replay.walk import Replayed

DRAFT_LENGTH = "draft length"
"""What can be swept of every policy beside its own settings."""

MOST_POINTS = 25


@dataclass(frozen=True)
class Outcome:
    """What a policy would have done on some recorded texts.

    Attributes:
        texts, tokens, rounds: how much was replayed.
        regret: rounds more than each text's best single drafter needs, mean over the texts.
        best_arm_ratio: of the rounds that drafted, over all texts, the share in which the text's best single drafter
            was played; ``None`` where none drafted.
        seconds: of all rounds, by the costs measured where the texts were recorded.
    """

    texts: int
    tokens: int
    rounds: int
    regret: float
    best_arm_ratio: float | None
    seconds: float

    @classmethod
    def of(cls, played: Sequence[Replayed]) -> Outcome:
        """The figures of one policy's replays, at least one."""
        rounds = sum(p.rounds for p in played)
        drafted = sum(p.drafted_rounds for p in played)
        return cls(
            texts=len(played),
            tokens=sum(sum(p.emitted) for p in played),
            rounds=rounds,
            regret=sum(p.regret for p in played) / len(played),
            best_arm_ratio=sum(p.best_arm_rounds for p in played) / drafted if drafted else None,
            seconds=sum(p.seconds or 0.0 for p in played),
        )

    @property
    def mean_accepted_tokens(self) -> float:
        """Tokens per round, the target's own token included."""
        return self.tokens / self.rounds

    @property
    def tokens_per_second(self) -> float | None:
        """Rate by the measured costs."""
        return self.tokens / self.seconds if self.seconds else None


def mean_regret(recorded: Sequence[Recorded], played: Sequence[Replayed]) -> np.ndarray:
    """Regret after each round, mean over the texts; a text that has ended keeps its last, so the end is the mean.

    After a round it is the rounds played less those in which the text's best single drafter has got as far.
    """
    longest = max(p.rounds for p in played)
    curves = [
        regret_by_round(p.emitted, np.minimum(text.table.accepted, text.run.params.draft_length), p.best_arms[0])
        for text, p in zip(recorded, played, strict=True)
    ]
    return np.mean([np.pad(curve, (0, longest - len(curve)), mode="edge") for curve in curves], axis=0)


def numeric_settings(spec: str) -> list[str]:
    """What can be swept of a policy: its settings that are numbers, and the draft length.

    Raises:
        PolicyError: there is no such policy, or a setting is wrong.
    """
    settings = settings_of(read_spec(spec)[0])
    return [*(key for key, setting in settings.items() if setting.numeric), DRAFT_LENGTH]


def is_whole(spec: str, setting: str) -> bool:
    """Whether a setting of the policy takes whole numbers only."""
    return setting == DRAFT_LENGTH or settings_of(read_spec(spec)[0])[setting].whole


def sweep_values(start: float, end: float, points: int, *, log: bool, whole: bool) -> list[float]:
    """Values from ``start`` to ``end``, evenly spaced or by a constant ratio, each once.

    Raises:
        UserError: the range or the number of points cannot be used.
    """
    if not 2 <= points <= MOST_POINTS:
        raise UserError(f"points must be 2 to {MOST_POINTS}, got {points}")
    if not start < end:
        raise UserError(f"the range must go from a smaller to a larger number, got {start:g} to {end:g}")
    if log and start <= 0:
        raise UserError(f"a logarithmic range must begin above 0, got {start:g}")
    values = np.geomspace(start, end, points) if log else np.linspace(start, end, points)
    if whole:
        return sorted({float(round(value)) for value in values.tolist()})
    return [float(f"{value:.4g}") for value in values.tolist()]  # what a person would type


def sweep(
    recorded: Sequence[Recorded], spec: str, setting: str, values: Sequence[float], route: Route | None = None
) -> Iterator[tuple[float, Replayed]]:
    """Replay a policy on every text at every value, one replay at a time.

    Regret at a draft length is that against the best single drafter at the same length.

    Raises:
        PolicyError: a value that the setting cannot take; the message says which.
    """
    whole = is_whole(spec, setting)
    for value in values:
        length = int(value) if setting == DRAFT_LENGTH else None
        if length is not None and length < 1:
            raise PolicyError(f"draft length must be at least 1; got {length}")
        varied = spec if length else with_setting(spec, setting, int(value) if whole else value)
        for text in recorded:
            yield value, text.replay(varied, route, length)
