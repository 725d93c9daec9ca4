"""What a result was made with, in words; the command that makes it again; and how it is cited: BibTeX with version,
commit, pool and hardware."""

from __future__ import annotations

import random
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from drafters.card import is_bundled
from multidraft.bench.comparison import NAMES
from multidraft.bench.runner import seed_of
from multidraft.bench.suites import load_suite, spread, suite_names
from multidraft.policies.settings import STARTS
from multidraft.policies.specs import starts_of
from multidraft.policies.titles import policy_titles
from multidraft.service.settings import is_loopback
from multidraft.ui.widgets import markup
from multidraft.ui.widgets.controls import LONGEST_LINK
from multidraft.ui.widgets.markup import count
from storage import experiments
from storage.records import PLAIN
from storage.run import Run

MOST_SEEDS = 100
"""An experiment's seed is found among so many: its runs have seeds that follow from it."""

UNKNOWN = "unknown"

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "×": r"$\times$",
    "→": r"$\rightarrow$",
    **{c: f"\\{c}" for c in "{}$&#_%"},
}

AUTHOR = "The multidraft authors"


def settings_of(about: Mapping[str, Any]) -> str:
    """What an experiment was set to: most tokens of an answer, and so on."""
    temperature = about["temperature"]
    parts = [f"at most {about['max_new_tokens']} tokens", f"draft length {about['draft_length']}"]
    parts.append("greedy" if not temperature else f"temperature {temperature:g}")
    if temperature and about["top_p"] != 1:
        parts.append(f"top-p {about['top_p']:g}")
    if temperature and about["top_k"]:
        parts.append(f"top-k {about['top_k']}")
    if about["streams"] > 1:
        parts.append(f"{about['streams']} texts at once")
    return ", ".join(parts)


def run_settings(run: Run) -> str:
    """What one run was set to."""
    settings = {NAMES.get(name, name): value for name, value in asdict(run.params).items()}
    settings |= {"seed": run.seed}
    return ", ".join(f"{name} {str(value).removesuffix('.0')}" for name, value in settings.items())


def made_of(run: Run) -> dict[str, Any]:
    """When a run was made, and on what, as ``experiments.listed`` has it of several."""
    return {"created_at": run.created_at.isoformat(), **asdict(run.conditions)}


def again_in_play(run: Run) -> str:
    """Query of the address of *Play* with a run's prompt, policy and settings; empty for one within a conversation, and
    where it would be too long."""
    g = run.generation
    named = {"prompt": g.prompt, "with_policy": g.policy, "with_pool": run.conditions.pool}
    query = urlencode({**named, **asdict(run.params), "seed": run.seed})
    return query if not g.turns and len(query) <= LONGEST_LINK else ""


def foot_of(*made: Mapping[str, Any]) -> str:
    """The line at the foot of a picture: without its conditions a speed-up says nothing. Where several results differ,
    each has its own."""
    columns = ("pool", "pool "), ("hardware", ""), ("dtype", ""), ("version", "version "), ("created_at", "")
    dated = [{**each, "created_at": each["created_at"][:10]} for each in made]
    parts = []
    for name, before in columns:
        if values := dict.fromkeys(str(each[name]) for each in dated if each[name]):
            parts.append(before + " → ".join(values))
    return "  ·  ".join(parts)


def facts_of(made: Mapping[str, Any]) -> list[tuple[str, str]]:
    """When, and on what, by name."""
    return [
        ("Made", f"{made['created_at'][:19].replace('T', ' ')} UTC"),
        ("Pool", f"{made['pool']}, card {made['card_hash'] or UNKNOWN}"),
        ("Hardware", f"{made['hardware'] or UNKNOWN}, {made['dtype'] or UNKNOWN}"),
        ("Version", str(made["version"] or UNKNOWN)),
    ]


def experiment_facts(path: Path, about: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The same of an experiment (``experiments.listed``) with these runs (``experiments.figures``), and what it was set
    to; where a command makes it again, that too."""
    (first,) = experiments.runs(path, about["id"], 1)
    libraries = ", ".join(f"{name} {version}" for name, version in first.conditions.libraries.items())
    finished = f"{count(about['runs'], 'run')}, {about['finished']} finished"
    followed = _seed(about, first)
    seed = first.seed if followed is None and about["prompts"] == 1 else followed
    facts = [
        *facts_of(about),
        ("Libraries", libraries or UNKNOWN),
        ("Settings", f"{settings_of(about)}; {finished}"),
        ("Texts at once", str(about["streams"])),
        *_starts(sorted(about["policies"])),
        ("Seed", "each prompt has its own" if seed is None else str(seed)),
    ]
    command = _command(about, followed, first, runs)
    return [*facts, ("Run it again", markup.macros("result_pages/page.html").command(command))] if command else facts


def _starts(policies: Sequence[str]) -> list[tuple[str, str]]:
    """What queries began with, by policy."""
    titles = policy_titles(policies)
    said = "; ".join(
        f"{', '.join(titles[spec] for spec in specs)} {STARTS[start]}" for start, specs in starts_of(policies).items()
    )
    return [("Start", said)] if said else []


def _command(about: Mapping[str, Any], seed: int | None, first: Run, runs: Sequence[Mapping[str, Any]]) -> str:
    """What runs the same prompts of a bundled suite and pool again; empty where nothing does."""
    if seed is None or not is_bundled(about["pool"]) or about["streams"] > 1:
        return ""
    items = load_suite(about["suite"]).items
    asked = [item.prompt for item in spread(items, about["prompts"])]
    made = list(dict.fromkeys(run["prompt"] for run in runs))
    if stream := made != asked:  # that of traffic
        random.Random(seed).shuffle(asked)
    if made != asked:
        return ""
    policies = [spec for spec in dict.fromkeys(run["policy"] for run in runs) if spec != PLAIN] or [PLAIN]
    repeat = max(Counter((run["policy"], run["prompt"]) for run in runs).values())
    params = first.params
    given = [
        ("pool", about["pool"], None),
        ("policies", ",".join(policies), None),
        ("limit", about["prompts"], len(items)),
        ("max-new-tokens", params.max_new_tokens, None),
        ("draft-length", params.draft_length, None),
        ("temperature", f"{params.temperature:g}", None),
        ("top-p", params.top_p, 1.0),
        ("top-k", params.top_k, 0),
        ("seed", seed, 0),
        ("repeat", repeat, 1),
    ]
    options = [part for name, value, usual in given if value != usual for part in (f"--{name}", str(value))]
    options += ["--stream"] if stream else []
    return shlex.join(["python", "-m", "multidraft", "bench", about["suite"], *options])


def _seed(about: Mapping[str, Any], first: Run) -> int | None:
    """The seed of a batch or benchmark of a bundled suite, from which that of its first run follows."""
    if about["source"] not in ("batch", "bench") or about["suite"] not in suite_names():
        return None
    of_prompt = [item for item in load_suite(about["suite"]).items if item.prompt == first.generation.prompt]
    return next((seed for seed in range(MOST_SEEDS) for item in of_prompt if seed_of(seed, item) == first.seed), None)


def bibtex(place: str, title: str, made: Sequence[Mapping[str, Any]], address: str, settings: Sequence[str]) -> str:
    """An entry for a result at an address, which is left out where only this machine could open it.

    Args:
        made: ``created_at`` and the conditions (``experiments.MADE_ON``); of a comparison those of A and of B.
        settings: what each was set to, such as policies and draft length.
    """
    key = re.sub(r"\W+", "-", f"multidraft-{place}")
    notes = [_note(*each) for each in zip(made, settings, strict=True)]
    note = ". ".join(f"{side}: {each}" for side, each in zip("AB", notes, strict=True)) if notes[1:] else notes[0]
    lines = [
        f"@misc{{{key},",
        f"  author = {{{{{AUTHOR}}}}},",
        f"  title = {{{{{_plain(title)}}}}},",
        f"  year = {{{made[-1]['created_at'][:4]}}},",
        f"  date = {{{made[-1]['created_at'][:10]}}},",
        f"  note = {{{_plain(note)}}},",
    ]
    if not is_loopback(urlsplit(address).hostname or ""):
        lines.append(f"  url = {{{quote(address, safe=':/?&=.-_~%')}}},")
        lines.append(f"  urldate = {{{datetime.now(UTC):%Y-%m-%d}}},")
    return "\n".join((*lines, "}"))


def _note(made: Mapping[str, Any], settings: str) -> str:
    """With what it was made."""
    number, _, commit = str(made["version"] or "").partition("+")
    program = f"multidraft {number}" + (f", commit {commit}" if commit else "")
    where = ", ".join(str(part) for part in (made["hardware"], made["dtype"]) if part)
    parts = (program, f"pool {made['pool']}, card {made['card_hash'] or 'unknown'}", where, settings)
    return "; ".join(filter(None, parts))


def _plain(text: str) -> str:
    """A text that LaTeX shows as it is, on one line."""
    return "".join(_SPECIAL.get(c, c) for c in " ".join(text.split()))
