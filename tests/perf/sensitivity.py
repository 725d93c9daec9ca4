"""What each number of ``rate-hedge`` changes, by replay of recorded texts: decoding time as it is ÷ with another value.

    python -m multidraft bench stream.jsonl --policies round-robin --max-new-tokens 256 --db runs.db
    python -m tests.perf.sensitivity runs.db

The texts, of the pool and machine that wrote the newest, begin cold and with what those before them taught, the router
being no part of it. All variants meet the same texts and the same costs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from drafters import traffic
from multidraft.bench.table import markdown
from multidraft.policies import likeness, rate_hedge
from multidraft.replay.machine_costs import MachineCosts
from multidraft.replay.recorded import Recorded, of_newest_bench, recorded_texts, with_costs
from multidraft.replay.stream import as_traffic
from storage.figures import ratio_of_totals
from tests.runs import result_of

SETTINGS = {"memory": (0.98, 0.995, 0.9975, 1.0), "budget": (0.0, 0.01, 0.1)}
CONSTANTS: Mapping[str, tuple[float, float]] = {
    "LEVELS": (9, 19),
    "GUESS_TOKENS": (2.0, 8.0),
    "HORIZON": (4.0, 16.0),
    "LUCK": (0.0, 0.1),
    "READERS": (0.1, 0.5),
    "UNKNOWN": (0.5, 0.7),
    "SPAN": (16, 64),
    "REFRESH": (4, 16),
    "RETRY_GROWTH": (2, 8),
    "ALONE": (0.1, 1.0),
    "STRETCH": (16, 32),
    "SIMILAR": (32, 128),
}
"""Other values of each."""
STARTS = ("cold", "traffic")


@contextmanager
def changed(name: str, value: float) -> Iterator[None]:
    """With another value of a constant of ``rate-hedge`` and of what it begins with."""
    holders = [module for module in (rate_hedge, likeness, traffic) if hasattr(module, name)]
    usual = getattr(holders[0], name)
    for module in holders:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module in holders:
            setattr(module, name, usual)


def seconds(texts: list[Recorded], settings: str = "") -> dict[str, list[float]]:
    """Decoding time of each text, by start."""
    specs = {start: f"rate-hedge:start={start}{settings}" for start in STARTS}
    found = result_of(as_traffic(texts, list(specs.values())))
    return {start: [played.seconds or 0.0 for played in found[spec]] for start, spec in specs.items()}


def main(path: Path) -> None:
    """Print the table."""
    rows = of_newest_bench(recorded_texts(path))[::-1]
    texts = [text for text in with_costs(rows, MachineCosts(path)) if text]
    usual, found = seconds(texts), dict[str, dict[str, list[float]]]()
    for name, values in SETTINGS.items():
        for value in values:
            found[f"`{name}={value:g}`"] = seconds(texts, f",{name}={value:g}")
    for name, others in CONSTANTS.items():
        for value in others:
            with changed(name, value):
                found[f"`{name} = {value:g}`"] = seconds(texts)
    lines = []
    for label, times in found.items():
        ratios = [ratio_of_totals(usual[start], times[start]) for start in STARTS]
        lines.append((label, *(f"{r.value:.3f} ({r.low or 0:.3f}–{r.high or 0:.3f})" if r else "–" for r in ratios)))
    print(f"{len(texts)} texts of {texts[0].run.conditions.pool}: speed relative to the usual values\n")
    print(markdown(["with", *STARTS], lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
