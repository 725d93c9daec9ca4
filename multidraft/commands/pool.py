"""``pool``: what is in a pool."""

from __future__ import annotations

import argparse
import json

from drafters.card import card_file, load_card, pool_names
from drafters.errors import UserError
from drafters.hardware import usable_device
from drafters.memory import advice, describe_estimate, render_estimate
from multidraft.bench.inspect import accepted_by_task, compare_plain_decoding, describe_pool, render_matrix
from multidraft.bench.suites import load_suite
from multidraft.bench.table import markdown
from multidraft.commands.options import limited, load_pool, sampling_params, show_progress


def add(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("pool", nargs="?", default="pocket", help="a bundled card's name or a path to a card")
    sub.add_argument("--matrix", action="store_true", help="accepted tokens by drafter and task")
    sub.add_argument("--estimate", action="store_true", help="the memory it needs, without fetching or loading weights")
    sub.add_argument("--device", help="auto, cpu, cuda, … (default: the card's)")
    sub.add_argument("--list", action="store_true", help="list the bundled pools")
    sub.add_argument("--plain", action="store_true", help="autoregressive decoding by this engine and by transformers")
    sub.add_argument("--suite", help="prompts for --matrix (default: pocket)")
    sub.add_argument("--limit", type=int, help="prompts for --matrix, evenly spread over the suite")
    sub.add_argument("--max-new-tokens", type=int, default=200, help="for --matrix (default: %(default)s)")
    sub.add_argument("--draft-length", type=int, help="for --matrix (default: the pool's)")
    sub.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Print parameters and costs, and with ``--matrix`` accepted tokens by drafter and task."""
    if not options.matrix and any(v is not None for v in (options.suite, options.limit, options.draft_length)):
        raise UserError("--suite, --limit and --draft-length are for --matrix; give --matrix too, or leave them out")
    if (options.matrix or options.plain) and (options.list or options.estimate):
        given, reads = "--list" if options.list else "--estimate", "--matrix" if options.matrix else "--plain"
        raise UserError(f"{reads} needs the pool loaded, and {given} loads none; give one of them")
    if options.list:
        return _list(as_json=options.json)
    if options.estimate:
        return _estimate(options)
    sampling_params(options, draft_length=1)  # errors come before the pool is loaded
    suite = limited(load_suite(options.suite or "pocket"), options.limit) if options.matrix else None
    pool = load_pool(options.pool, options.device)
    content = describe_pool(pool)
    if suite:
        params = sampling_params(options, pool.draft_length)
        content["matrix"] = accepted_by_task(
            pool, suite.items, params, lambda done: show_progress(done, len(suite.items), "prompts")
        )
    if options.plain:
        prompt = pool.examples[0][1] if pool.examples else "Hello"
        content["plain_tokens_per_second"] = compare_plain_decoding(pool, prompt)
    if options.json:
        print(json.dumps(content, indent=2))
        return 0
    target = content["target"]
    print(f"{content['title']} ({content['pool']}, {content['dtype']} on {content['device']})")
    print(
        f"target: {target['parameters'] / 1e6:.1f}M parameters, {target['step_ms']:.2f} ms per token, "
        f"{target['verify_ms']:.2f} ms to verify {target['draft_length']} drafted tokens\n"
    )
    cells = [
        (d["name"], d["kind"], f"{d['parameters'] / 1e6:.2f}M" if d["parameters"] else "–", f"{d['draft_step_ms']:.3f}")
        for d in content["drafters"]
    ]
    print(markdown(["drafter", "kind", "parameters", "ms per drafted token"], cells))
    if options.plain:
        ours, theirs = content["plain_tokens_per_second"].values()
        print(
            f"\nAutoregressive decoding, prefill included: {ours:.0f} tokens/s; transformers' generate: {theirs:.0f}."
        )
    if options.matrix:
        print("\nAccepted tokens per round (own token counted), by drafter and task; * is the most for a task:\n")
        print(render_matrix(content["matrix"]))
    return 0


def _list(*, as_json: bool) -> int:
    cards = [load_card(name)[0] for name in pool_names()]
    if as_json:
        print(json.dumps([{"name": c.name, "title": c.title, "description": c.description} for c in cards], indent=2))
        return 0
    width = max(len(card.name) for card in cards)
    print("\n".join(f"{card.name:{width}}  {card.title}" for card in cards))
    return 0


def _estimate(options: argparse.Namespace) -> int:
    path, (card, _) = card_file(options.pool), load_card(options.pool)
    device = options.device or card.device
    if not device.startswith("cuda"):  # a GPU's needs can be estimated without one
        device = usable_device(device, card.name)
    content = describe_estimate(card, path, device)
    if (free := content["free"]) is not None and content["total"] > free:
        content["advice"] = advice(card, path, device, free)
    print(json.dumps(content, indent=2) if options.json else render_estimate(content))
    return 0
