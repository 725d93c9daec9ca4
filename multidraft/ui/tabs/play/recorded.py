"""What *Play* shows before anything was run: one prompt without drafters and under the default policy, recorded.

``python -m multidraft.ui.tabs.play.recorded`` records it anew, on the pocket pool.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from drafters.pool import Pool, load_pool
from drafters.sampling import SamplingParams
from multidraft.bench.baseline import settle_baseline
from multidraft.bench.measure import Measurement, Request
from multidraft.policies.titles import DEFAULT_POLICY
from storage.records import PLAIN
from storage.run import Origin, Run

FILE = Path(__file__).with_name("recorded.json")
"""A list of two runs, as :meth:`~storage.run.Run.to_json` has them."""

POOL, TASK = "pocket", "mixed"
"""Whose first example of this task is answered: two tasks in a row, so that the best drafter changes."""

MAX_NEW_TOKENS = 256


def record(pool: Pool) -> list[Run]:
    """The runs, measured on a pool that is warm: everything is decoded twice, and the second time counts.

    They are of no history; what replays and later queries need is left out, as the larger part of the file.
    """
    prompt = next(prompt for task, prompt in pool.examples if task == TASK)
    params = SamplingParams(max_new_tokens=MAX_NEW_TOKENS, draft_length=pool.draft_length)
    for _ in range(2):
        runs: list[Run] = []
        for policy in (PLAIN, DEFAULT_POLICY):
            origin = Origin("command", TASK)
            request = Request(prompt, policy, params, 0, origin, measures_baseline=False, earlier=tuple(runs))
            runs.append(Measurement(pool, request).compute())
    settle_baseline(runs)
    for run in runs:
        run.scores = replace(run.scores, acceptance=None, suitability=None)
    return runs


@cache
def recorded_runs() -> tuple[Run, ...]:
    """The bundled ones: first without drafters, then under the policy."""
    return tuple(Run.from_json(values) for values in json.loads(FILE.read_text(encoding="utf-8")))


def text_of(runs: list[Run]) -> str:
    """The file that holds these runs."""
    return json.dumps([run.to_json() for run in runs], ensure_ascii=False, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    found = record(load_pool(POOL))
    FILE.write_text(text_of(found), encoding="utf-8")
    print(f"{FILE}: {found[1].speedup:.2f} times as fast under {DEFAULT_POLICY}, on {found[1].conditions.hardware}")
