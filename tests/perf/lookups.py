"""What a lookup costs: microseconds per draft of the drafters that copy from a long context or from a datastore.

    python -m tests.perf.lookups manuals.store --pool my-pool.yaml

The context is the datastore's own text.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch

from drafters.base import Drafter
from drafters.card import find_card, load_card
from drafters.checkpoints.loading import tokenizer_of
from drafters.kinds.rest import DatastoreDrafter
from drafters.kinds.suffix import SuffixDrafter
from drafters.retrieval.datastore import END, Datastore, tokenizer_fingerprint
from drafters.sampling import SamplingParams
from multidraft.bench.table import markdown
from multidraft.commands.options import add_pool

CONTEXT, DRAFTS = 100_000, 500
"""Tokens of context at most, and how many of them are followed by a measured draft."""
DRAFT_LENGTH = 8


def microseconds_per_draft(drafter: Drafter, history: Sequence[int]) -> tuple[float, float]:
    """Median and 99th percentile of a draft, one after each of the last ``DRAFTS`` tokens of ``history``.

    What is timed is what a round waits for: catching up on the new token, and drafting.
    """
    params, generator = SamplingParams(draft_length=DRAFT_LENGTH), torch.Generator()
    context = list(history[:-DRAFTS])
    drafter.prepare(context)
    seconds = []
    for token in history[-DRAFTS:]:
        context.append(token)
        begun = time.perf_counter()
        drafter.propose(context, DRAFT_LENGTH, params, generator)
        seconds.append(time.perf_counter() - begun)
    return 1e6 * median(seconds), 1e6 * sorted(seconds)[len(seconds) * 99 // 100]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure chains and trees of both kinds, and print the times."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.lookups", description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path, help="a datastore of at least 1,000 tokens")
    add_pool(parser)
    options = parser.parse_args(arguments)
    card = find_card(options.pool)
    tokenizer = tokenizer_of(load_card(card)[0].target, card)
    store = Datastore.open(options.store, tokenizer_fingerprint(tokenizer), len(tokenizer))
    context = store.tokens[store.tokens != END][:CONTEXT].tolist()
    if len(context) < 2 * DRAFTS:
        parser.error(f"{options.store} has {len(context):,} tokens; {2 * DRAFTS:,} are needed")
    rows = []
    for nodes in (None, 16):
        shape = "chain" if nodes is None else f"tree of {nodes}"
        suffix, rest = SuffixDrafter("suffix", nodes), DatastoreDrafter("rest", store, nodes)
        for drafter, size in ((suffix, len(context)), (rest, len(store.tokens))):
            middle, high = microseconds_per_draft(drafter, context)
            rows.append((drafter.name, f"{size:,} tokens", shape, f"{middle:.0f}", f"{high:.0f}"))
    print(markdown(["drafter", "context or datastore", "draft", "median µs", "99th percentile µs"], rows))


if __name__ == "__main__":
    main()
