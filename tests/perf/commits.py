"""What keeping a run costs: the transactions as it begins and ends, and after each the emptying of SQLite's log.

    python -m tests.perf.commits --folder /path/on/the/disk

Both are waited for as by a server, with a history of so many runs before them; the emptying hands the file to the disk
(fsync), so the folder has to be on the disk in question.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np

from multidraft.bench.table import markdown
from storage.replaced import Watch
from storage.store import Store
from tests.runs import make_generation, make_round, make_run

PATIENCE = 60.0


def measure(folder: Path, before: int, runs: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each run's writes, by what they are; a run has so many rounds."""
    generation = make_generation(rounds=[make_round(index) for index in range(rounds)])
    found: dict[str, list[float]] = {"begin": [], "end": [], "emptying the log": []}
    leave = Watch.leave

    def timed(watch: Watch, db: object) -> None:
        begun = time.perf_counter()
        leave(watch, db)  # type: ignore[arg-type]
        found["emptying the log"].append(1e3 * (time.perf_counter() - begun))

    with Store(folder / "runs.db") as store:
        store.add(*(make_run(generation) for _ in range(before))).wait(PATIENCE)
        with patch.object(Watch, "leave", timed):
            for number in range(runs):
                for what in ("begin", "end"):
                    begun = time.perf_counter()
                    if what == "begin":
                        kept = store.add(begins=(str(number), {"prompt": "a b"}))
                    else:
                        kept = store.add(make_run(generation), ends=str(number))
                    if not kept.wait(PATIENCE):
                        raise SystemExit(f"the history in {folder} cannot be written: {store.problem}")
                    found[what].append(1e3 * (time.perf_counter() - begun))
    return found


def main(options: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, help="on the disk of the history; by default that of temporary files")
    parser.add_argument("--before", type=int, default=1000, help="runs that the history has")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(options)
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        found = measure(Path(folder), asked.before, asked.runs, asked.rounds)
    shares = {what: np.percentile(times, (50, 90, 99)).tolist() for what, times in found.items()}
    if asked.json:
        print(json.dumps(shares))
    else:
        print(f"{asked.runs} runs of {asked.rounds} rounds, after {asked.before}; each wait holds one emptying")
        rows = ([what, *(f"{share:.2f}" for share in found)] for what, found in shares.items())
        print(markdown(["milliseconds", "p50", "p90", "p99"], rows))


if __name__ == "__main__":
    main()
