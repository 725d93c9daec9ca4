"""What several commands share: options, and how they are read."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Never

from tqdm import tqdm

import multidraft as md
from multidraft.bench.suites import Suite, spread
from multidraft.engine import check_seed
from multidraft.policies import check_specs

if TYPE_CHECKING:
    from drafters.pool import Pool

REPLAY_POLICIES = "ucb,exp3,ucbspec,exp3spec,normal-hedge,rate-hedge"


def add_pool(sub: argparse.ArgumentParser) -> None:
    """The option ``--pool``."""
    sub.add_argument("--pool", default="pocket", help="a bundled card's name or a path to a card")


def load_pool(name_or_path: str | Path) -> Pool:
    """Load a pool; a bar on standard error tells how far models from the Hub are."""
    from drafters.pool import load_pool as load
    from drafters.progress import Step

    bar: tqdm[Never] | None = None

    def report(step: Step) -> None:
        nonlocal bar
        if step.doing == "fetching" and (bar is None or bar.desc != f"fetching {step.what}"):
            if bar is not None:
                bar.close()
            bar = tqdm(desc=f"fetching {step.what}", unit="B", unit_scale=True)
        if bar is not None and step.total_bytes:
            bar.total, bar.n = step.total_bytes, step.done_bytes
            bar.refresh()

    try:
        return load(name_or_path, progress=report)
    finally:
        if bar is not None:
            bar.close()  # what is said next begins a line


def add_decoding(sub: argparse.ArgumentParser) -> None:
    """The options of a decoding."""
    sub.add_argument("--max-new-tokens", type=int, default=128)
    sub.add_argument("--temperature", type=float, default=0.0)
    sub.add_argument("--top-p", type=float, default=1.0)
    sub.add_argument("--top-k", type=int, default=0)
    sub.add_argument("--draft-length", type=int, help="default: the pool's")
    sub.add_argument("--seed", type=int, default=0)


def sampling_params(options: argparse.Namespace, draft_length: int) -> md.SamplingParams:
    """The sampling parameters that were asked for.

    Raises:
        UserError: one of them is out of range.
    """
    asked = {name: getattr(options, name, None) for name in md.SamplingParams.__dataclass_fields__}
    given = {name: value for name, value in asked.items() if value is not None}
    try:
        return md.SamplingParams(**{"draft_length": draft_length, **given})
    except ValueError as error:
        raise md.UserError(str(error)) from None


def check_decoding(options: argparse.Namespace, policies: Sequence[str]) -> None:
    """Refuse what no pool could decode, before one is loaded: numbers out of range, policies that there are not.

    Raises:
        UserError: the message says what is wrong.
    """
    check_seed(options.seed)
    sampling_params(options, draft_length=1)
    check_specs(policies)


def split_specs(text: str) -> list[str]:
    """Split comma-separated policy specs; ``key=value`` parts belong to the spec before them."""
    specs: list[str] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        if specs and "=" in part and ":" not in part:
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return specs


def limited(suite: Suite, limit: int | None) -> Suite:
    """``limit`` prompts of the suite, evenly spread over it; all of them by default."""
    if limit is not None and limit < 1:
        raise md.UserError("--limit must be at least 1")
    return Suite(suite.name, spread(suite.items, limit), suite.problems)
