"""What each number of ``rate-hedge`` changes, by replay of recorded texts: decoding time as it is ÷ with another value.

    python -m multidraft bench stream.jsonl --policies round-robin --max-new-tokens 256 --db runs.db
    python -m tests.perf.sensitivity runs.db [NAME …] [--router]

The texts, of the pool and machine that wrote the newest, begin cold and with what those before them taught, the router
being no part of it, unless ``--router`` is given. All variants meet the same texts and the same costs. By default all
numbers are changed, one at a time.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from drafters import traffic
from multidraft.bench.table import markdown
from multidraft.policies import likeness, pair_costs, rate_hedge
from multidraft.replay.experiment import as_traffic
from multidraft.replay.recorded import Recorded, Route, of_newest_bench, recorded_texts, route_of, texts_with_costs
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
    "LONG_AFTER": (1, 4),
    "RETRY_GROWTH": (2, 8),
    "ALONE": (0.1, 1.0),
    "STRETCH": (16, 32),
    "SIMILAR": (32, 128),
    "EVIDENCE": (1.0, 6.0),
    "ROUTED": (0.1, 0.4),
    "ALIKE": (0.0, 0.6),
}
"""Other values of each."""
STARTS = ("cold", "traffic")


@contextmanager
def changed(name: str, value: float) -> Iterator[None]:
    """With another value of a constant of ``rate-hedge`` and of what it begins with."""
    holders = [module for module in (rate_hedge, pair_costs, likeness, traffic) if hasattr(module, name)]
    usual = getattr(holders[0], name)
    for module in holders:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module in holders:
            setattr(module, name, usual)


def seconds(texts: list[Recorded], route: Route | None, settings: str = "") -> dict[str, list[float]]:
    """Decoding time of each text, by start."""
    specs = {start: f"rate-hedge:start={start}{settings}" for start in STARTS}
    found = result_of(as_traffic(texts, list(specs.values()), route))
    return {start: [played.seconds or 0.0 for played in found[spec]] for start, spec in specs.items()}


def main(path: Path, names: Sequence[str] = (), *, router: bool = False) -> None:
    """Print the table."""
    texts = texts_with_costs(of_newest_bench(recorded_texts(path))[::-1], path)
    route = route_of(texts[0].run.conditions.pool, texts[0].drafters) if router else None
    usual, found = seconds(texts, route), dict[str, dict[str, list[float]]]()
    for name in names or [*SETTINGS, *CONSTANTS]:
        for value in SETTINGS.get(name, ()):
            found[f"`{name}={value:g}`"] = seconds(texts, route, f",{name}={value:g}")
        for value in CONSTANTS.get(name, ()):
            with changed(name, value):
                found[f"`{name} = {value:g}`"] = seconds(texts, route)
    lines = []
    for label, times in found.items():
        ratios = [ratio_of_totals(usual[start], times[start]) for start in STARTS]
        lines.append((label, *(f"{r.value:.3f} ({r.low or 0:.3f}–{r.high or 0:.3f})" if r else "–" for r in ratios)))
    print(f"{len(texts)} texts of {texts[0].run.conditions.pool}: speed relative to the usual values\n")
    print(markdown(["with", *STARTS], lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What each number of rate-hedge changes, by replay.")
    parser.add_argument("db", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="settings and constants to change (default: all)")
    parser.add_argument("--router", action="store_true", help="the traffic heeds the pool's router")
    given = parser.parse_args()
    main(given.db, given.names, router=given.router)
