"""``datastore``: past text for ``rest`` drafters, and the tokens that occur in it for token maps."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from drafters.card import find_card, load_card
from drafters.checkpoints.loading import tokenizer_of
from drafters.errors import UserError
from drafters.files import replacing
from drafters.retrieval.datastore import build_datastore, count_tokens
from multidraft.bench.table import count
from multidraft.commands.options import add_pool, check_not_over, written_files


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "action",
        choices=["build", "tokens"],
        help="build: write a datastore of text files; tokens: write a token map, their tokens by frequency",
    )
    add_pool(sub)
    sub.add_argument("--out", type=Path, required=True, help="the datastore, or the token map in JSON, to write")
    sub.add_argument("--most", type=int, help="tokens of a token map at most; by default all that occur")
    sub.add_argument("texts", nargs="+", type=Path, help="plain text, or .jsonl with one text per line")


def run(options: argparse.Namespace) -> int:
    check_not_over(options.out, *options.texts)
    if options.out.exists() and not options.out.is_file():
        raise UserError(f"--out names {options.out}, which is not a regular file; name another one")
    path = find_card(options.pool)
    tokenizer = tokenizer_of(load_card(path)[0].target, path)
    (_write_token_map if options.action == "tokens" else _write_datastore)(options, tokenizer)
    return 0


def _write_datastore(options: argparse.Namespace, tokenizer: PreTrainedTokenizerBase) -> None:
    if options.most is not None:
        raise UserError("--most applies to tokens only; a datastore holds all tokens of its texts")
    built = build_datastore(options.out, options.texts, tokenizer)
    seconds = built.seconds + built.sort_seconds
    print(
        f"{options.out}: {count(built.texts, 'text')}, {built.tokens:,} tokens, {built.size / 1e6:.1f} MB "
        f"in {seconds:.1f} s ({built.size / 1e6 / seconds:.1f} MB/s; "
        f"tokenising {built.seconds:.1f} s, sorting {built.sort_seconds:.1f} s)"
    )


def _write_token_map(options: argparse.Namespace, tokenizer: PreTrainedTokenizerBase) -> None:
    if options.most is not None and options.most < 1:
        raise UserError(f"--most: {options.most} tokens are no token map; give at least 1")
    with written_files(None, options.out):
        counts = count_tokens(options.texts, tokenizer)
        frequent = counts.most_common(options.most)
        with replacing(options.out) as part:
            part.write_text(json.dumps([token for token, _ in frequent]), "utf-8")
    share = sum(found for _, found in frequent) / counts.total()
    print(f"{options.out}: {len(frequent):,} tokens, {share:.2%} of all {counts.total():,} in these texts")
