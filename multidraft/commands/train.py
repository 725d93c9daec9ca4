"""``train``: drafters for any target, by self-distillation."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from shlex import quote

import torch
from transformers import PreTrainedTokenizerBase

import multidraft as md
from drafters.card import load_card
from drafters.checkpoints.loading import tokenizer_of
from drafters.source import Source
from multidraft.bench.inspect import render_matrix
from multidraft.commands.options import finite
from multidraft.engine.arguments import read_seed
from multidraft.training.answers import Asking
from multidraft.training.plan import Plan, Shape, examine, source_of
from multidraft.training.processes import Processes
from multidraft.training.prompts import read_tasks, read_templates
from multidraft.training.publish import check_login, check_push, finish, learnt_nothing, push
from multidraft.training.specialists import distil
from multidraft.training.work import write_text

DEFAULTS = {"drafter": (3.0, 5e-5), "new": (20.0, 2e-3), "eagle": (20.0, 5e-4)}
"""Epochs and peak learning rates by what is trained: an existing model, a new one, heads."""
POSITIVE = "minutes epochs lr feature_memory batch_tokens max_new_tokens batch evaluate vocabulary limit".split()


def add(sub: argparse.ArgumentParser) -> None:
    more = sub.add_argument
    more("--target", required=True, help="the target: a folder, or its name on the Hub")
    more("--revision", help="commit of the target's Hub repository")
    data = "prompts: .jsonl, .json, .csv, text or .parquet files, or data sets of the Hub (OWNER/NAME[:FILES])"
    more("--data", nargs="+", required=True, metavar="[TASK=]SOURCE", help=data)
    more("--tasks", nargs="+", default=[], metavar="TASK", help="tasks to train for (default: all)")
    more("--column", help="the field of the data that holds the prompt")
    template = "text around a task's prompts, with {prompt} in it"
    more("--template", action="append", default=[], metavar="TASK=TEXT", help=template)
    more("--limit", type=int, help="most prompts per task")
    more("--heldout", type=finite, default=0.1, help="share of prompts held out to measure on (default: 0.1)")
    more("--out", type=Path, required=True, help="folder of the finished pool")
    more("--work", type=Path, help="folder of answers and checkpoints, to resume from (default: OUT/work)")
    more("--kind", choices=["lm", "eagle"], default="lm", help="small language models or EAGLE-3 heads")
    more("--drafter", help="lm: start from this model, of the target's vocabulary (a folder or Hub name)")
    more("--new", metavar="LAYERSxWIDTH", help="lm: start from new weights (default: 2x768)")
    more("--minutes", type=finite, default=60.0, help="longest training time per drafter (default: 60)")
    more("--epochs", type=finite, help="most epochs per drafter (default: 3 with --drafter, otherwise 20)")
    more("--lr", type=finite, help="peak learning rate (default: 5e-5 with --drafter, 2e-3, heads 5e-4)")
    more("--batch-tokens", type=int, default=4096, help="tokens per step and process (default: 4096)")
    more("--vocabulary", type=int, default=16_000, help="eagle: tokens that a head can propose (default: 16000)")
    memory = "eagle: memory for cached hidden states (default: 4)"
    more("--feature-memory", type=finite, default=4.0, metavar="GB", help=memory)
    temperatures = "of the target's answers (default: 0 0.3 0.7 1)"
    more("--temperatures", type=finite, nargs="+", default=[0.0, 0.3, 0.7, 1.0], help=temperatures)
    more("--max-new-tokens", type=int, default=512, help="longest answer (default: 512)")
    more("--batch", type=int, default=16, help="prompts answered at once (default: 16)")
    more("--evaluate", type=int, default=5, help="held-out prompts per task to measure on (default: 5)")
    more("--draft-length", type=int, default=6, help="of the finished pool (default: 6)")
    more("--dtype", choices=["float32", "bfloat16", "float16"], help="of the target (default: by device)")
    more("--device", choices=["auto", "cpu", "cuda"], default="auto")
    more("--seed", type=int, default=0)
    more("--card", help="use the chat template of this card (a bundled card's name or a path)")
    more("--plain", action="store_true", help="pass prompts unchanged to a target without a chat template")
    more("--push", metavar="USER/NAME", help="upload the finished pool to the Hub")
    more("--private", action="store_true", help="make the repositories of --push private")
    more("--dry-run", action="store_true", help="show what would be done and stop")


def run(options: argparse.Namespace) -> int:
    """Read prompts, let the target answer them, train drafters and write the pool."""
    _check_numbers(options)
    plan, tokenizer = _plan(options)
    check_push(options.push, options.private, plan.target.id)
    for folder in () if options.dry_run else (plan.out, plan.work):  # before hours of training
        probe = folder / f".probe-{os.getpid()}"  # one per process
        write_text(probe, "")
        probe.unlink()
    processes = Processes.join(plan.device)
    processes.say(examine(plan, processes.count))
    if options.dry_run:
        return 0
    if options.push and processes.first:
        check_login()
    answers = distil(plan, tokenizer, processes)
    processes.leave()
    if not processes.first:
        return 0
    matrix = finish(plan, answers)
    processes.say(f"\nTokens per round on held-out prompts, own token counted:\n\n{render_matrix(matrix)}\n")
    if learnt_nothing(matrix):
        processes.say(
            "hint: no drafter has more tokens accepted than before its training. Train longer (--minutes, --epochs), "
            "which resumes from here, or on more prompts, with another --work\n"
        )
    processes.say(f"{plan.out}: python -m multidraft demo --pool {quote(str(plan.out))}")
    if options.push:
        processes.say(f"pushed to {push(plan.out, options.push, options.private)}")
    return 0


def _plan(options: argparse.Namespace) -> tuple[Plan, PreTrainedTokenizerBase]:
    """The plan that the options describe, and the target's tokenizer."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise md.UserError("--device cuda: this machine has no GPU that torch can use")
    device = "cuda" if options.device != "cpu" and torch.cuda.is_available() else "cpu"
    if options.kind == "eagle" and (options.drafter or options.new):
        raise md.UserError("--drafter and --new are for --kind lm; EAGLE-3 heads take their shape from the target")
    if options.drafter and options.new:
        raise md.UserError("give either --drafter, to start from a model, or --new, to start from new weights")
    target = source_of(options.target, options.revision)
    start: Source | Shape | None = None
    if options.kind == "lm":
        start = source_of(options.drafter) if options.drafter else Shape.parse(options.new or "2x768")
    epochs, lr = DEFAULTS["eagle" if options.kind == "eagle" else "drafter" if options.drafter else "new"]
    tokenizer = tokenizer_of(target, options.out / "card.yaml")
    form = load_card(options.card)[0] if options.card else None
    if form and form.chat_template:
        tokenizer.chat_template = form.chat_template
    if not tokenizer.chat_template and not options.plain:
        raise md.UserError(
            f"the tokenizer of {options.target} has no chat template: it is a base model, or its files are incomplete. "
            "Give --plain to pass prompts as they are, or --card to use the template of a card"
        )
    templates = read_templates(options.template)
    same = ("kind", "out", "minutes", "batch_tokens", "vocabulary", "evaluate", "draft_length")
    plan = Plan(
        **{name: getattr(options, name) for name in same},
        target=target,
        start=start,
        tasks=read_tasks(options.data, options.tasks, templates, options.column, options.limit, options.heldout),
        work=options.work or options.out / "work",
        asking=Asking(tuple(options.temperatures), options.max_new_tokens, options.batch, options.seed),
        epochs=options.epochs or epochs,
        lr=options.lr or lr,
        feature_memory=int(options.feature_memory * 2**30),
        chat_template=form.chat_template if form else None,
        chat_template_kwargs=form.chat_template_kwargs if form else {},
        dtype=options.dtype or ("bfloat16" if device == "cuda" else "float32"),
        device=device,
    )
    return plan, tokenizer


def _check_numbers(options: argparse.Namespace) -> None:
    """Raise :class:`~drafters.errors.UserError` if a number is out of range."""
    read_seed(options.seed)
    for name in POSITIVE:
        value = getattr(options, name)
        if value is not None and value <= 0:
            raise md.UserError(f"--{name.replace('_', '-')} must be greater than 0, got {value:g}")
    if not 1 <= options.draft_length <= 64:
        raise md.UserError("--draft-length must be between 1 and 64")
    if not 0 < options.heldout < 1:
        raise md.UserError("--heldout must be a share between 0 and 1")
    if min(options.temperatures) < 0:
        raise md.UserError("--temperatures must not be negative")
