"""``policies``: what there is to choose from, and what choosing costs."""

from __future__ import annotations

import argparse
import json
from typing import Any

import multidraft as md
from multidraft.bench.policy_cost import microseconds_per_round, milliseconds_to_replay
from multidraft.policies import POLICIES, settings_of


def add(sub: argparse.ArgumentParser) -> None:
    """Its arguments."""
    sub.add_argument("--time", action="store_true", help="measure a decision with its update, per round, and a replay")
    sub.add_argument("--drafters", type=int, default=8, help="arms for --time")
    sub.add_argument("--draft-length", type=int, default=8, help="K for --time")
    sub.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """List the policies with their settings and sources."""
    if options.drafters < 2 or options.draft_length < 1:
        raise md.UserError("--drafters must be at least 2 and --draft-length at least 1")
    rows: list[dict[str, Any]] = []
    for name, kind in sorted(POLICIES.items()):
        settings: dict[str, Any] = {
            key: None if value.default is value.empty else value.default for key, value in settings_of(kind).items()
        }
        row: dict[str, Any] = {"policy": name, "title": kind.title, "settings": settings, "source": kind.source}
        if options.time:
            row["microseconds"] = microseconds_per_round(name, options.drafters, options.draft_length)
            row["replay_milliseconds"] = milliseconds_to_replay(name, options.drafters, options.draft_length)
        rows.append(row)
    if options.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    timed = " µs a round | ms to replay 500 tokens |" if options.time else ""
    print(f"| policy | what it is | settings | source |{timed}")
    print(f"|---|---|---|---|{'---|---|' if options.time else ''}")
    for row in rows:
        shown = ", ".join(key if value is None else f"{key}={value}" for key, value in row["settings"].items())
        time = f" {row['microseconds']:.0f} | {row['replay_milliseconds']:.1f} |" if options.time else ""
        print(f"| {row['policy']} | {row['title']} | {shown} | {row['source']} |{time}")
    return 0
