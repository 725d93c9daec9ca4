"""``datastore``: past text for ``rest`` drafters."""

from __future__ import annotations

import argparse
from pathlib import Path

from drafters.card import find_card, load_card
from drafters.checkpoints.loading import tokenizer_of
from drafters.retrieval.datastore import build_datastore
from multidraft.commands.options import add_pool


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("action", choices=["build"], help="build: tokenise text files and write a datastore")
    add_pool(sub)
    sub.add_argument("--out", type=Path, required=True, help="the datastore to write")
    sub.add_argument("texts", nargs="+", type=Path, help="plain text, or .jsonl with one text per line")


def run(options: argparse.Namespace) -> int:
    path = find_card(options.pool)
    built = build_datastore(options.out, options.texts, tokenizer_of(load_card(path)[0].target, path))
    seconds = built.seconds + built.sort_seconds
    print(
        f"{options.out}: {built.texts:,} texts, {built.tokens:,} tokens, {built.size / 1e6:.1f} MB in {seconds:.1f} s "
        f"({built.size / 1e6 / seconds:.1f} MB/s; tokenising {built.seconds:.1f} s, sorting {built.sort_seconds:.1f} s)"
    )
    return 0
