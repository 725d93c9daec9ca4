"""``datastore``: past text for ``rest`` drafters."""

from __future__ import annotations

import argparse
from pathlib import Path

from multidraft.bench.lookup_cost import microseconds_per_draft
from multidraft.commands.options import add_pool

HISTORY = 100_000
"""Tokens of history for --time, at most."""
LEAST = 1000
"""At least."""


def add(sub: argparse.ArgumentParser) -> None:
    """Its arguments."""
    sub.add_argument("action", choices=["build"], help="build: tokenise text files and write a datastore")
    add_pool(sub)
    sub.add_argument("--out", type=Path, required=True, help="the datastore to write")
    sub.add_argument(
        "--time",
        action="store_true",
        help=f"measure drafts for its own first text ({LEAST:,} tokens at least), and from that text as a history",
    )
    sub.add_argument("texts", nargs="+", type=Path, help="plain text, or .jsonl with a text in each line")


def run(options: argparse.Namespace) -> int:
    """Build a datastore with the tokenizer of a pool."""
    from drafters.card import find_card, load_card
    from drafters.collect import build_datastore
    from drafters.datastore import END, Datastore, tokenizer_fingerprint
    from drafters.loading import load_tokenizer
    from drafters.rest import DatastoreDrafter
    from drafters.suffix import SuffixDrafter

    path = find_card(options.pool)
    tokenizer = load_tokenizer(load_card(path)[0], path)
    built = build_datastore(options.out, options.texts, tokenizer, least=LEAST if options.time else 0)
    seconds = built.seconds + built.sort_seconds
    print(
        f"{options.out}: {built.texts:,} texts, {built.tokens:,} tokens, {built.size / 1e6:.1f} MB in {seconds:.1f} s "
        f"({built.size / 1e6 / seconds:.1f} MB/s; tokenising {built.seconds:.1f} s, sorting {built.sort_seconds:.1f} s)"
    )
    if options.time:
        store = Datastore.open(options.out, tokenizer_fingerprint(tokenizer), len(tokenizer))
        history = store.tokens[store.tokens != END][:HISTORY].tolist()
        print(f"\n| drafter | history or datastore | draft | median µs | 99 % below µs |\n{'|---' * 5}|")
        for nodes in (None, 16):
            shape = "chain" if nodes is None else f"tree of {nodes}"
            for drafter, size in (
                (SuffixDrafter("suffix", nodes), len(history)),
                (DatastoreDrafter("rest", store, nodes), built.tokens),
            ):
                middle, high = microseconds_per_draft(drafter, history)
                print(f"| {drafter.name} | {size:,} tokens | {shape} | {middle:.0f} | {high:.0f} |")
    return 0
