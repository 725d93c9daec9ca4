"""Plain decoding against itself, measured as *Play* measures a run: how far from 1 speed-ups stray on this machine.

``python -m tests.perf.self_comparison --visits 40`` decodes prompts without drafters after the usual baseline and shows
each decode speed-up, and how many of the intervals that the page shows with them hold the 1. On a quiet machine 38 of
40 speed-ups lie within 0.93–1.07; the exit status is 1 where fewer do.
"""

import argparse
import json
import sys
from collections.abc import Sequence

import numpy as np

from drafters.pool import Pool, load_pool
from drafters.sampling import SamplingParams
from multidraft.bench.measure import Measurement, Request
from multidraft.bench.suites import load_suite
from storage.figures import TOO_NOISY
from storage.records import PLAIN

REACH = 0.93, 1.07
SHARE = 38 / 40


def speedups(pool: Pool, prompts: Sequence[str], visits: int, tokens: int) -> list[tuple[float, float | None]]:
    """The decode speed-up of each visit and its uncertainty; answers too short for one are left out."""
    params = SamplingParams(max_new_tokens=tokens, draft_length=pool.draft_length)
    found = []
    for visit in range(visits + 1):  # the first warms up
        run = Measurement(pool, Request(prompts[visit % len(prompts)], PLAIN, params)).compute()
        if visit and run.speedup is not None:
            found.append((run.speedup, run.speedup_uncertainty))
    return found


def within(found: Sequence[float]) -> int:
    """How many lie within ``REACH``."""
    return sum(REACH[0] <= speedup <= REACH[1] for speedup in found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print them; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", default="pocket")
    parser.add_argument("--suite", default="pocket")
    parser.add_argument("--visits", type=int, default=40)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    prompts = [item.prompt for item in load_suite(options.suite).items]
    visits = speedups(load_pool(options.pool), prompts, options.visits, options.max_new_tokens)
    found = [speedup for speedup, _ in visits]
    known = [(speedup, off) for speedup, off in visits if off is not None]
    covered, noisy = sum(abs(s - 1) <= s * off for s, off in known), sum(off > TOO_NOISY for _, off in known)
    quiet = within(found) >= SHARE * len(found) > 0
    if options.json:
        said = {"covered": covered, "intervals": len(known), "quiet": quiet}
        print(json.dumps({"speedups": found, "within": within(found), **said}))
        return int(not quiet)
    low, middle, high = np.percentile(found, (2.5, 50, 97.5)) if found else (np.nan,) * 3
    print(" ".join(f"{speedup:.2f}" for speedup in found))
    inside = f"{within(found)} of {len(found)} within {REACH[0]}–{REACH[1]}"
    print(f"{inside}; median {middle:.3f}, 95 % of them {low:.3f}–{high:.3f}")
    print(f"{covered} of {len(known)} intervals hold the 1; {noisy} are too wide for a figure")
    if not quiet:
        print("This machine is too noisy to tell: single speed-ups mean little on it.")
    return int(not quiet)


if __name__ == "__main__":
    sys.exit(main())
