"""Retrain the pocket pool: ``python -m multidraft.training.pocket all --minutes 240``, or one stage of it.

Stages: tokenizer, target, answers (the target's own, to distil from), drafters, heads (EAGLE-3), medusa, datastore (of
answers), router, score (the target on held-out prompts, by exact check), suite (the bundled held-out prompts). Target,
drafters and heads resume from their checkpoints.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from drafters.retrieval.datastore import END, write_datastore
from drafters.router import Router
from multidraft.training.answers import load_answers, save_answers
from multidraft.training.medusa import build_ngram
from multidraft.training.pocket.corpus import FAMILIES, Example, Split
from multidraft.training.pocket.corpus.two_tasks import tasks_of
from multidraft.training.pocket.data import FAMILY_WEIGHTS, Mixture, quoting
from multidraft.training.pocket.distill import collect_answers, train_drafter
from multidraft.training.pocket.heads import train_head, train_medusa_heads
from multidraft.training.pocket.pretrain import save_model, train_target
from multidraft.training.pocket.score import score_target
from multidraft.training.pocket.tokenizer import train_tokenizer
from multidraft.training.prompts import GENERALIST

VOCAB_SIZE = 4096
SHARES = {"target": 0.6, "answers": 0.1, "drafters": 0.18, "heads": 0.1, "medusa": 0.02}
"""Shares of the whole budget under ``all``."""
SPECIALISTS = tuple(name for name in FAMILIES if name != "mixed")
GENERALIST_SHARE = 0.25
HEAD_SPECIALISTS, GENERAL_HEAD_SHARE = ("json", "math"), 0.5
SUITE_PROMPTS_PER_FAMILY, COPYING = 10, 30
SUITES = Path(__file__).parents[2] / "bench" / "suites"
ROUTER_PROMPTS_PER_FAMILY = 1500
DATASTORE_TOKENS = 60_000


def main() -> None:
    """Parse the command line and run a stage, or all of them."""
    parser = argparse.ArgumentParser(
        prog="python -m multidraft.training.pocket",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    stages: dict[str, Callable[[argparse.Namespace, float], None]] = {
        "tokenizer": make_tokenizer,
        "target": make_target,
        "answers": make_answers,
        "drafters": make_drafters,
        "heads": make_heads,
        "medusa": make_medusa,
        "datastore": make_datastore,
        "router": make_router,
        "score": score,
        "suite": make_suite,
    }
    parser.add_argument("stage", choices=["all", *stages])
    parser.add_argument("--pool", type=Path, default=Path("drafters/pocket"), help="folder of the pool's weights")
    parser.add_argument("--work", type=Path, default=Path("runs/pocket"), help="checkpoints and collected answers")
    parser.add_argument("--minutes", type=float, default=60.0, help="time budget of the stage, or of all")
    parser.add_argument("--tokens", type=float, default=float("inf"), help="token budget of the target")
    parser.add_argument("--lr", type=float, default=2e-3, help="peak learning rate of the target")
    parser.add_argument("--echo-share", type=float, default=0.05, help="share of copying exercises for the target")
    parser.add_argument(
        "--only", nargs="*", default=None, help="drafters to train, or families of --file (default: all)"
    )
    parser.add_argument("--refine", action="store_true", help="train the pool's drafters on, instead of new ones")
    parser.add_argument("--gsm8k", type=Path, help="gsm8k_train.jsonl, a small share of real text")
    parser.add_argument("--per-family", type=int, default=100, help="held-out prompts per family to score or to write")
    parser.add_argument("--file", type=Path, help="write the suite there, of --per-family prompts, not the bundled one")
    parser.add_argument("--seed", type=int, default=11, help="seed of the suite's prompts")
    parser.add_argument("--show-wrong", type=int, default=0, help="print so many wrong answers per family")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.gsm8k and not options.gsm8k.is_file():
        parser.error(f"--gsm8k: there is no file {options.gsm8k}")
    if unknown := set(options.only or ()) - {*FAMILIES, GENERALIST}:
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; choose among {', '.join(FAMILIES)}, {GENERALIST}")
    if options.file and GENERALIST in (options.only or ()):
        parser.error(f"--only: {GENERALIST} is a drafter, not a family of prompts")
    if options.stage != "all":
        stages[options.stage](options, options.minutes)
        return
    for name, run in stages.items():
        print(f"== {name}")
        run(options, options.minutes * SHARES.get(name, 0.0))


def make_tokenizer(options: argparse.Namespace, minutes: float) -> None:
    """Learn the vocabulary from 40,000 examples, unless a target is being trained on the present one."""
    if (options.work / "target.pt").exists():
        print(f"kept: {options.work / 'target.pt'} was trained with it; remove that file to begin anew")
        return
    mixture = Mixture(FAMILY_WEIGHTS, seed=1, gsm8k=options.gsm8k)
    examples = (mixture.draw() for _ in range(40_000))
    train_tokenizer((f"{e.prompt}\n{e.completion}" for e in examples), VOCAB_SIZE, options.pool / "target")


def make_target(options: argparse.Namespace, minutes: float) -> None:
    """Train the target and write it into the pool."""
    train_target(
        AutoTokenizer.from_pretrained(options.pool / "target"),
        minutes,
        options.pool / "target",
        tokens=options.tokens,
        checkpoint=options.work / "target.pt",
        gsm8k=options.gsm8k,
        device=options.device,
        lr=options.lr,
        echo_share=options.echo_share,
    )


def make_answers(options: argparse.Namespace, minutes: float) -> None:
    """Collect the target's answers to training prompts."""
    tokenizer, target = _load(options)
    save_answers(collect_answers(target, tokenizer, minutes, seed=7), options.work / "answers.pt")


def drop_stale(work: Path) -> None:
    """Remove checkpoints of drafters of an older target: older than the answers, they must not be resumed."""
    written = (work / "answers.pt").stat().st_mtime
    for path in work.glob("*.pt"):
        if path.name not in ("target.pt", "answers.pt") and path.stat().st_mtime < written:
            path.unlink()


def make_drafters(options: argparse.Namespace, minutes: float) -> None:
    """Train the generalist, then the specialists from it, and write them into the pool."""
    tokenizer = AutoTokenizer.from_pretrained(options.pool / "target")
    answers = load_answers(options.work / "answers.pt")
    drop_stale(options.work)
    budgets = {GENERALIST: minutes * GENERALIST_SHARE}
    budgets |= {name: minutes * (1 - GENERALIST_SHARE) / len(SPECIALISTS) for name in SPECIALISTS}
    for name, budget in budgets.items():
        if options.only and name not in options.only:
            continue
        print(f"-- {name}: {budget:.1f} min")
        origin = options.pool / (name if options.refine else GENERALIST)
        start = None
        if options.refine or name != GENERALIST:
            start = AutoModelForCausalLM.from_pretrained(origin, dtype="float32")
        model = train_drafter(
            tokenizer,
            name,
            answers,
            budget,
            start_from=start,
            checkpoint=options.work / "drafter.pt",
            device=options.device,
        )
        save_model(model, options.pool / name)


def make_heads(options: argparse.Namespace, minutes: float) -> None:
    """Train EAGLE-3 heads: the generalist, then specialists from it; write them into the pool."""
    tokenizer, target = _load(options)
    answers = load_answers(options.work / "answers.pt")
    drop_stale(options.work)
    budgets = {GENERALIST: minutes * GENERAL_HEAD_SHARE}
    budgets |= {name: minutes * (1 - GENERAL_HEAD_SHARE) / len(HEAD_SPECIALISTS) for name in HEAD_SPECIALISTS}
    general = None
    for name, budget in budgets.items():
        if options.only and name not in options.only:
            continue
        print(f"-- head of {name}: {budget:.1f} min")
        checkpoint = options.work / f"{name}-head.pt"
        head = train_head(
            target,
            tokenizer,
            name,
            answers,
            budget,
            options.pool / f"eagle-{name}",
            start_from=general,
            checkpoint=checkpoint,
        )
        general = head if name == GENERALIST else general


def make_medusa(options: argparse.Namespace, minutes: float) -> None:
    """Train Medusa heads, count the n-grams that rescore them, and write both into the pool."""
    tokenizer, target = _load(options)
    answers = load_answers(options.work / "answers.pt")
    drop_stale(options.work)
    checkpoint = options.work / "medusa.pt"
    train_medusa_heads(target, tokenizer, answers, minutes, options.pool / "medusa", checkpoint=checkpoint)
    build_ngram(answers, len(tokenizer), options.pool / "ngram.safetensors")


def make_datastore(options: argparse.Namespace, minutes: float) -> None:
    """Write a datastore of the target's own answers, of all families alike, for ``rest``."""
    tokenizer = AutoTokenizer.from_pretrained(options.pool / "target")
    answers = load_answers(options.work / "answers.pt")
    random.Random(0).shuffle(answers)
    tokens = list[int]()
    for answer in answers:
        tokens += [*answer.encoded.ids[answer.encoded.prompt_length :], END]
        if len(tokens) >= DATASTORE_TOKENS:
            break
    write_datastore(options.pool / "answers.store", np.array(tokens, np.uint32), tokenizer)
    print(f"a datastore of {len(tokens):,} tokens")


def make_router(options: argparse.Namespace, minutes: float) -> None:
    """Train the router on training prompts and tell how often it finds the drafters of held-out ones."""
    rng = random.Random(5)

    def ask(split: Split, per_family: int) -> list[Example]:
        return [family.example(rng, split) for family in FAMILIES.values() for _ in range(per_family)]

    examples = ask("train", ROUTER_PROMPTS_PER_FAMILY)
    router = Router.train([e.prompt for e in examples], [tasks_of(e) for e in examples])
    router.save(options.pool / "router")
    right = dict.fromkeys(FAMILIES, 0)
    for example in ask("heldout", options.per_family):
        wanted, likely = tasks_of(example), router.probabilities(example.prompt)
        right[example.family] += wanted == set(sorted(likely, key=likely.__getitem__)[-len(wanted) :])
    for name, count in right.items():
        print(f"router: {count}/{options.per_family} held-out prompts of {name} to the right drafters")


def score(options: argparse.Namespace, minutes: float) -> None:
    """Print the target's accuracy on held-out prompts by family."""
    tokenizer, target = _load(options)
    for result in score_target(target, tokenizer, options.per_family):
        for example, answer in result.wrong[: options.show_wrong]:
            print(f"\n[{result.family}] {example.prompt}\n--- expected\n{example.completion}\n--- answered\n{answer}\n")


def make_suite(options: argparse.Namespace, minutes: float) -> None:
    """Write a suite of held-out prompts of every family to --file; or else the bundled ones, ``pocket`` and
    ``copying``, whose answers stand in their prompts."""
    rng = random.Random(options.seed)
    count = options.per_family if options.file else SUITE_PROMPTS_PER_FAMILY
    chosen = options.only if options.file and options.only else list(FAMILIES)
    prompts = [(name, FAMILIES[name].example(rng, "heldout").prompt) for name in chosen for _ in range(count)]
    if options.file:
        _write_suite(options.file, prompts)
        return
    _write_suite(SUITES / "pocket.jsonl", prompts)
    _write_suite(SUITES / "copying.jsonl", [(e.family, e.prompt) for e in (quoting(rng) for _ in range(COPYING))])


def _write_suite(path: Path, prompts: Sequence[tuple[str, str]]) -> None:
    """Lines of id, task and prompt; ``prompts`` are pairs of task and prompt."""
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = Counter[str]()
    with path.open("w", encoding="utf-8") as file:
        for task, prompt in prompts:
            row = {"id": f"{task}-{counts[task]}", "task": task, "prompt": prompt}
            counts[task] += 1
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _load(options: argparse.Namespace) -> tuple[AutoTokenizer, LlamaForCausalLM]:
    tokenizer = AutoTokenizer.from_pretrained(options.pool / "target")
    target = AutoModelForCausalLM.from_pretrained(options.pool / "target", dtype="float32").to(options.device)
    return tokenizer, target.eval()


if __name__ == "__main__":
    main()
