"""What was seen of a crowd, and whether it was well."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

FLAT = 0.05
"""What memory may grow after the warm-up, by the fitted line, as a share of its mean."""

FEWEST_MINUTES = 10
"""A shorter run does not tell whether memory is flat."""


@dataclass
class Report:
    """What was seen.

    Attributes:
        seconds: of whole actions, by action; only of those that ended well.
        refused: by a limit.
        errors: all other ends of actions, with what was said.
        wrong: answers that are not plain decoding's; ``crossed`` if they are those of another prompt.
        recorded: runs of the history that are whole; ``wrong_records`` have a text that is not plain decoding's.
        waits: seconds that were told to one who joined the queue, and how long it was.
        memory: minutes since the first visitor, and MiB of the server.
        status: with which the server ended, negative for a signal; ``ended_by_itself`` if it was not asked to.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    wrong: int = 0
    crossed: int = 0
    recorded: int = 0
    wrong_records: int = 0
    tokens: int = 0
    minutes: float = 0.0
    waits: list[tuple[float, float]] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    status: int | None = 0
    ended_by_itself: int | None = None

    @property
    def growth(self) -> tuple[float, float]:
        """Of memory after the first quarter, by least squares: MiB an hour, and the part of the mean by which it grew
        in that time."""
        later = [sample for sample in self.memory if sample[0] >= self.memory[-1][0] / 4]
        at, size = np.array(later).T
        slope = float(np.polyfit(at, size, 1)[0]) if len(later) > 1 else 0.0
        return 60 * slope, slope * float(at[-1] - at[0]) / float(size.mean())

    @property
    def well(self) -> bool:
        """Whether nothing went wrong; of memory only where it can be told."""
        grew = self.minutes >= FEWEST_MINUTES and self.growth[1] > FLAT
        bad = self.errors or self.wrong or self.wrong_records or self.status or self.ended_by_itself is not None
        return not (bad or grew) and any(self.seconds.values())

    def __str__(self) -> str:
        done = sum(map(len, self.seconds.values()))
        lines = [
            f"{done:,} actions in {self.minutes:.1f} minutes, {done / self.minutes / 60:.2f} a second; "
            f"{self.recorded:,} runs of {self.tokens:,} tokens recorded",
            f"refused by a limit: {sum(self.refused.values())} {dict(self.refused) or ''}".rstrip(),
            f"errors: {len(self.errors)}",
            *(f"  {number} × {said}" for said, number in Counter(self.errors).most_common(20)),
            f"wrong answers: {self.wrong}, of which another prompt's: {self.crossed}",
            f"wrong texts in the history: {self.wrong_records}",
            f"the server's exit status: {self.status}{' BY ITSELF' if self.ended_by_itself is not None else ''}",
            f"{'seconds':16}{'actions':>8}{'p50':>8}{'p90':>8}{'p99':>8}{'most':>8}",
        ]
        for action, seconds in sorted(self.seconds.items()):
            parts = "".join(f"{part:8.2f}" for part in np.percentile(seconds, (50, 90, 99, 100)))
            lines.append(f"{action:16}{len(seconds):8}{parts}")
        if self.waits:
            told, true = np.array(self.waits).T
            parts = " ".join(f"{part:.2f}" for part in np.percentile(true / told, (5, 10, 50, 90, 95)))
            lines.append(
                f"waits: {len(told)} told, of {told.mean():.1f} s in the mean, where {true.mean():.1f} s were true; "
                f"true / told at p5, p10, p50, p90, p95: {parts}"
            )
        slope, share = self.growth
        verdict = "flat" if share <= FLAT else "GROWS"
        verdict = verdict if self.minutes >= FEWEST_MINUTES else "too short a run to tell"
        sizes = [size for _, size in self.memory]
        lines.append(
            f"memory: {sizes[0]:.0f} MiB at first, {max(sizes):.0f} at most, {sizes[-1]:.0f} in the end; after a "
            f"quarter of the time {slope:+.0f} MiB an hour, {share:+.1%} in all: {verdict}"
        )
        return "\n".join(lines)
