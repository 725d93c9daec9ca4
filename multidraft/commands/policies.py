"""``policies``: the policies with their settings and sources."""

from __future__ import annotations

import argparse
import json
from typing import Any

from multidraft.bench.table import markdown
from multidraft.policies import POLICIES, settings_of


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--json", action="store_true", help="print the list as JSON")


def run(options: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    for name, kind in sorted(POLICIES.items()):
        settings: dict[str, Any] = {key: setting.default for key, setting in settings_of(kind).items()}
        rows.append({"policy": name, "title": kind.title, "settings": settings, "source": kind.source})
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        pairs = row["settings"].items()
        row["settings"] = ", ".join(key if value is None else f"{key}={value}" for key, value in pairs)
    print(markdown(["policy", "what it is", "settings", "source"], [row.values() for row in rows]))
    return 0
