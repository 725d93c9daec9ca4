"""``train``: drafters for any target, by self-distillation."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

import multidraft as md

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from drafters.training.plan import Plan
    from drafters.training.processes import Processes

EPOCHS = {"drafter": 3.0, "new": 20.0, "eagle": 20.0}
RATES = {"drafter": 5e-5, "new": 2e-3, "eagle": 5e-4}
"""Peak learning rates by what is trained: a model that is trained already, a new one, heads."""
POSITIVE = ("minutes", "epochs", "lr", "batch_tokens", "max_new_tokens", "batch", "evaluate", "vocabulary", "limit")


def add(sub: argparse.ArgumentParser) -> None:
    """Its arguments."""
    sub.add_argument("--target", required=True, help="the target: a folder, or its name on the Hub")
    sub.add_argument("--revision", help="commit of the target's Hub repository")
    sub.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="[TASK=]SOURCE",
        help="prompts: .jsonl, .json, .csv, text or .parquet files, or data sets of the Hub (OWNER/NAME[:FILES])",
    )
    sub.add_argument("--tasks", nargs="+", default=[], metavar="TASK", help="tasks to train for (default: all)")
    sub.add_argument("--column", help="which field of the data holds the prompt")
    sub.add_argument(
        "--template", action="append", default=[], metavar="TASK=TEXT", help="what to ask, with {prompt} in it"
    )
    sub.add_argument("--limit", type=int, help="most prompts of a task")
    sub.add_argument("--heldout", type=float, default=0.1, help="share of the prompts to measure on (default: 0.1)")
    sub.add_argument("--out", type=Path, required=True, help="folder of the finished pool")
    sub.add_argument("--work", type=Path, help="folder of answers and checkpoints, to resume from (default: OUT/work)")
    sub.add_argument("--kind", choices=["lm", "eagle"], default="lm", help="small language models or EAGLE-3 heads")
    sub.add_argument("--drafter", help="lm: start from this model, of the target's vocabulary (a folder or Hub name)")
    sub.add_argument("--new", metavar="LAYERSxWIDTH", help="lm: start from new weights (default: 2x768)")
    sub.add_argument("--minutes", type=float, default=60.0, help="most training time of a drafter (default: 60)")
    sub.add_argument("--epochs", type=float, help="most epochs of a drafter (default: 3 with --drafter, else 20)")
    sub.add_argument("--lr", type=float, help="peak learning rate (default: 5e-5 with --drafter, 2e-3, heads 5e-4)")
    sub.add_argument("--batch-tokens", type=int, default=4096, help="tokens of a step, of each process (default: 4096)")
    sub.add_argument(
        "--vocabulary", type=int, default=16_000, help="eagle: most tokens that it can propose (default: 16000)"
    )
    sub.add_argument(
        "--feature-memory", type=float, default=4.0, metavar="GB", help="eagle: hidden states kept (default: 4)"
    )
    sub.add_argument(
        "--temperatures", type=float, nargs="+", default=[0.0, 0.3, 0.7, 1.0], help="(default: 0 0.3 0.7 1)"
    )
    sub.add_argument("--max-new-tokens", type=int, default=512, help="longest answer (default: 512)")
    sub.add_argument("--batch", type=int, default=16, help="prompts answered at a time (default: 16)")
    sub.add_argument("--evaluate", type=int, default=5, help="prompts of a task to measure on (default: 5)")
    sub.add_argument("--draft-length", type=int, default=6, help="of the pool (default: 6)")
    sub.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], help="of the target (default: by device)")
    sub.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--card", help="put prompts in the chat form of this card (a bundled one's name, or a path)")
    sub.add_argument("--plain", action="store_true", help="put prompts as they stand to a target without chat template")
    sub.add_argument("--push", metavar="USER/NAME", help="upload the pool to the Hub when it is done")
    sub.add_argument("--private", action="store_true", help="push to private repositories")
    sub.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")


def run(options: argparse.Namespace) -> int:
    """Read prompts, let the target answer, train drafters, write the pool."""
    from drafters.training.plan import examine
    from drafters.training.processes import Processes
    from drafters.training.publish import check_login, finish, learnt_nothing, push
    from drafters.training.specialists import distil
    from multidraft.bench.inspect import render_matrix

    _check_numbers(options)
    plan, tokenizer = _plan(options)
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if not options.dry_run:
        _check_folders(plan)
    processes = Processes.join(plan.device)
    log = _speaker(processes)
    log(examine(plan, count))
    if options.dry_run:
        return 0
    if options.push and processes.first:
        check_login(plan.target.id)
    answers = distil(plan, tokenizer, log, processes)
    processes.leave()
    if not processes.first:
        return 0
    matrix = finish(plan, tokenizer, answers, log)
    log(f"\nTokens a round on held-out prompts, own token counted:\n\n{render_matrix(matrix)}\n")
    if learnt_nothing(matrix):
        log(
            "hint: no drafter accepts more tokens than before its training. Give it more time (--minutes, --epochs), "
            "which goes on from here, or more prompts, in another --work\n"
        )
    log(f"{plan.out}: python -m multidraft demo --pool {plan.out}")
    if options.push:
        log(f"pushed to {push(plan.out, options.push, options.private)}")
    return 0


def _plan(options: argparse.Namespace) -> tuple[Plan, PreTrainedTokenizerBase]:
    """The plan that the options describe, and the target's tokenizer."""
    import torch

    from drafters.card import find_card, load_card
    from drafters.loading import tokenizer_of
    from drafters.training.answering import Asking
    from drafters.training.plan import Plan, Shape, source_of
    from drafters.training.prompts import read_tasks, read_templates

    if options.device == "cuda" and not torch.cuda.is_available():
        raise md.UserError("--device cuda: this machine has no GPU that torch can use")
    device = "cuda" if options.device != "cpu" and torch.cuda.is_available() else "cpu"
    if options.kind == "eagle" and (options.drafter or options.new):
        raise md.UserError("--drafter and --new are for --kind lm; EAGLE-3 heads have their shape from the target")
    if options.drafter and options.new:
        raise md.UserError("give --drafter, to start from a model, or --new, to start from new weights; not both")
    target = source_of(options.target, options.revision)
    start = source_of(options.drafter) if options.drafter else Shape.parse(options.new or "2x768")
    what = "eagle" if options.kind == "eagle" else "drafter" if options.drafter else "new"
    tokenizer = tokenizer_of(target, options.out / "card.yaml")
    form = load_card(find_card(options.card))[0] if options.card else None
    if form and form.chat_template:
        tokenizer.chat_template = form.chat_template
    if not tokenizer.chat_template and not options.plain:
        raise md.UserError(
            f"the tokenizer of {options.target} has no chat template: it is a base model, or its files are incomplete. "
            "With --plain prompts are put to it as they stand, with --card in the form of a card"
        )
    plan = Plan(
        target=target,
        kind=options.kind,
        start=start if options.kind == "lm" else None,
        tasks=read_tasks(
            options.data,
            only=options.tasks,
            templates=read_templates(options.template),
            column=options.column,
            limit=options.limit,
            heldout=options.heldout,
        ),
        out=options.out,
        work=options.work or options.out / "work",
        asking=Asking(tuple(options.temperatures), options.max_new_tokens, options.batch, options.seed),
        minutes=options.minutes,
        epochs=options.epochs or EPOCHS[what],
        lr=options.lr or RATES[what],
        batch_tokens=options.batch_tokens,
        vocabulary=options.vocabulary,
        feature_memory=int(options.feature_memory * 2**30),
        evaluate=options.evaluate,
        draft_length=options.draft_length,
        chat_template=form.chat_template if form else None,
        chat_template_kwargs=form.chat_template_kwargs if form else {},
        dtype=options.dtype or ("bfloat16" if device == "cuda" else "float32"),
        device=device,
    )
    return plan, tokenizer


def _check_numbers(options: argparse.Namespace) -> None:
    """Raise :class:`~multidraft.errors.UserError` where a number makes no sense."""
    for name in POSITIVE:
        value = getattr(options, name)
        if value is not None and value <= 0:
            raise md.UserError(f"--{name.replace('_', '-')} must be more than 0, not {value:g}")
    if not 1 <= options.draft_length <= 64:
        raise md.UserError("--draft-length must be between 1 and 64")
    if not 0 < options.heldout < 1:
        raise md.UserError("--heldout is a share, between 0 and 1")
    if min(options.temperatures) < 0:
        raise md.UserError("--temperatures must not be negative")


def _check_folders(plan: Plan) -> None:
    """Raise where the pool could not be written: better now than after hours of training."""
    from drafters.training.work import write_file

    for folder in (plan.out, plan.work):
        probe = folder / f".probe-{os.getpid()}"  # each of several processes has its own
        write_file(probe, lambda part: part.write_text(""))
        probe.unlink()


def _speaker(processes: Processes):  # type: ignore[no-untyped-def]
    """Prints as it goes, by the first process only."""
    return lambda line: print(line, flush=True) if processes.first else None
