"""Retrain the pocket pool: ``python -m multidraft.training.pocket all --minutes 240``, or one stage of it.

Stages: tokenizer, target, answers (the target's own, to distil from), drafters, maps (of the tokens that they draft),
heads (EAGLE-3), medusa, datastore (of answers), router, score (the target on held-out prompts, by exact check), suite
(the bundled held-out prompts). Target, drafters and heads resume from their checkpoints.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from drafters.retrieval.datastore import END, write_datastore
from drafters.router import Router
from multidraft.training.answers import Answer, language_model_loss, load_answers, save_answers
from multidraft.training.data import bucket_batches
from multidraft.training.loop import Budget, train
from multidraft.training.medusa import build_ngram
from multidraft.training.plan import make_llama
from multidraft.training.pocket.corpus import FAMILIES, Example, Split
from multidraft.training.pocket.corpus.two_tasks import tasks_of
from multidraft.training.pocket.data import CONTEXT_WINDOW, FAMILY_WEIGHTS, Mixture, drilled, quoting, train_tokenizer
from multidraft.training.pocket.induction import plant_copying
from multidraft.training.pocket.models import (
    TARGET_SHAPE,
    Heads,
    collect_answers,
    save_model,
    score_target,
    train_drafter,
)
from multidraft.training.prompts import GENERALIST

VOCAB_SIZE = 4096
STAGES = {
    "tokenizer": 0.0,
    "target": 0.6,
    "answers": 0.1,
    "drafters": 0.18,
    "maps": 0.0,
    "heads": 0.1,
    "medusa": 0.02,
    "datastore": 0.0,
    "router": 0.0,
    "score": 0.0,
    "suite": 0.0,
}
"""The stages with their shares of the whole budget under ``all``."""
SPECIALISTS = tuple(name for name in FAMILIES if name != "mixed")
GENERALIST_SHARE = 0.25
HEAD_SPECIALISTS, GENERAL_HEAD_SHARE = ("json", "math"), 0.5
SUITE_PROMPTS_PER_FAMILY, COPYING = 10, 30
SUITES = Path(__file__).parents[2] / "bench" / "suites"
ROUTER_PROMPTS_PER_FAMILY = 1500
MAP_ANSWERS_PER_FAMILY, GENERAL_TOKENS = 3000, 2048
DATASTORE_TOKENS = 60_000


def main() -> None:
    """Parse the command line and run a stage, or all of them."""
    parser = argparse.ArgumentParser(
        prog="python -m multidraft.training.pocket",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    more = parser.add_argument
    more("stage", choices=["all", *STAGES])
    more("--pool", type=Path, default=Path("drafters/pocket"), help="folder of the pool's weights")
    more("--work", type=Path, default=Path("runs/pocket"), help="checkpoints and collected answers")
    more("--minutes", type=float, default=60.0, help="time budget of the stage, or of all")
    more("--tokens", type=float, default=float("inf"), help="token budget of the target")
    more("--lr", type=float, default=2e-3, help="peak learning rate of the target")
    more("--echo-share", type=float, default=0.05, help="share of copying exercises for the target")
    more("--only", nargs="*", default=[], help="drafters to train, or families of --file (default: all)")
    more("--refine", action="store_true", help="train the pool's drafters on, instead of new ones")
    more("--gsm8k", type=Path, help="gsm8k_train.jsonl, a small share of real text")
    more("--per-family", type=int, default=100, help="held-out prompts per family to score or to write")
    more("--file", type=Path, help="write the suite there, of --per-family prompts, not the bundled one")
    more("--seed", type=int, default=11, help="seed of the suite's prompts")
    more("--show-wrong", type=int, default=0, help="print so many wrong answers per family")
    more("--device", default="cpu")
    options = parser.parse_args()
    if options.gsm8k and not options.gsm8k.is_file():
        parser.error(f"--gsm8k: there is no file {options.gsm8k}")
    if unknown := set(options.only) - {*FAMILIES, GENERALIST}:
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; choose among {', '.join(FAMILIES)}, {GENERALIST}")
    if options.file and GENERALIST in options.only:
        parser.error(f"--only: {GENERALIST} is a drafter, not a family of prompts")
    if options.stage != "all":
        Stage(options, options.minutes).run(options.stage)
        return
    for name, share in STAGES.items():
        print(f"== {name}")
        Stage(options, options.minutes * share).run(name)


class Stage:
    """A stage in progress: its options, its minutes, and what it works with, loaded when it is asked for."""

    def __init__(self, options: argparse.Namespace, minutes: float):
        self.options, self.minutes = options, minutes
        self.pool: Path = options.pool
        self.work: Path = options.work

    def run(self, name: str) -> None:
        """Run the stage of this name."""
        getattr(self, f"_{name}")()

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The pool's tokenizer."""
        return AutoTokenizer.from_pretrained(self.pool / "target")

    @cached_property
    def target(self) -> LlamaForCausalLM:
        """The target on the device."""
        return self._model("target").to(self.options.device).eval()

    @cached_property
    def answers(self) -> list[Answer]:
        """The target's answers. Checkpoints of drafters of an older target are removed: none may be resumed."""
        path = self.work / "answers.pt"
        for checkpoint in set(self.work.glob("*.pt")) - {self.work / "target.pt", path}:
            if checkpoint.stat().st_mtime < path.stat().st_mtime:
                checkpoint.unlink()
        return load_answers(path)

    def _model(self, name: str) -> LlamaForCausalLM:
        return AutoModelForCausalLM.from_pretrained(self.pool / name, dtype="float32")

    def _chosen(self, specialists: Sequence[str], share: float) -> Iterator[tuple[str, Budget]]:
        """The drafters that ``--only`` chooses, the generalist first, with their parts of the time."""
        for name in (GENERALIST, *specialists):
            minutes = self.minutes * (share if name == GENERALIST else (1 - share) / len(specialists))
            if not self.options.only or name in self.options.only:
                print(f"-- {name}: {minutes:.1f} min")
                yield name, Budget(minutes)

    def _tokenizer(self) -> None:
        """Learn the vocabulary from 40,000 examples, unless a target is being trained on the present one."""
        if (self.work / "target.pt").exists():
            print(f"not changed: {self.work / 'target.pt'} was trained with it; remove that file to begin anew")
            return
        mixture = Mixture(FAMILY_WEIGHTS, seed=1, gsm8k=self.options.gsm8k)
        examples = (mixture.draw() for _ in range(40_000))
        train_tokenizer((f"{e.prompt}\n{e.completion}" for e in examples), VOCAB_SIZE, self.pool / "target")

    def _target(self) -> None:
        """Train the target on the corpus and on drills."""
        torch.manual_seed(0)
        options, tokenizer = self.options, self.tokenizer
        model = make_llama(tokenizer, num_key_value_heads=2, **TARGET_SHAPE)
        plant_copying(model)
        model.to(options.device)
        # A resumed run draws new examples: the corpus has no end, so nothing is lost by not replaying it.
        mixture = Mixture(FAMILY_WEIGHTS, seed=time.time_ns() % 2**32, gsm8k=options.gsm8k)
        texts, pad = drilled(tokenizer, mixture, options.echo_share), tokenizer.pad_token_id
        batches = bucket_batches(texts, 2048, pad, random.Random(0), CONTEXT_WINDOW)
        loss_of = language_model_loss(model, pad, options.device)
        budget = Budget(self.minutes, options.tokens, self.work / "target.pt")
        train(model, batches, loss_of, budget, options.lr, accumulate=2)
        save_model(model, self.pool / "target")
        tokenizer.save_pretrained(self.pool / "target")

    def _answers(self) -> None:
        """Collect the target's answers to training prompts."""
        save_answers(collect_answers(self.target, self.tokenizer, self.minutes, seed=7), self.work / "answers.pt")

    def _drafters(self) -> None:
        """Train the generalist, then the specialists from it."""
        for name, budget in self._chosen(SPECIALISTS, GENERALIST_SHARE):
            budget = replace(budget, checkpoint=self.work / f"{name}.pt")
            start = None
            if self.options.refine or name != GENERALIST:
                start = self._model(name if self.options.refine else GENERALIST)
            device = self.options.device
            model = train_drafter(self.tokenizer, name, self.answers, budget, start_from=start, device=device)
            save_model(model, self.pool / name)

    def _maps(self) -> None:
        """Write which tokens each drafter drafts: all that occur in 3,000 answers of its family; the generalist those
        most frequent over all families alike."""
        rng, shares = random.Random(41), Counter[int]()
        for name, family in FAMILIES.items():
            counts = Counter[int]()
            for _ in range(MAP_ANSWERS_PER_FAMILY):
                answer = family.example(rng, "train").completion
                counts.update([*self.tokenizer.encode(answer, add_special_tokens=False), self.tokenizer.eos_token_id])
            shares.update({token: count / counts.total() for token, count in counts.items()})
            if name in SPECIALISTS:
                self._write_map(name, counts, None)
        self._write_map(GENERALIST, shares, GENERAL_TOKENS)

    def _write_map(self, name: str, counts: Counter[int], most: int | None) -> None:
        tokens = [token for token, _ in counts.most_common(most)]
        (self.pool / name / "token_map.json").write_text(json.dumps(tokens) + "\n", "utf-8")
        share = sum(counts[token] for token in tokens) / sum(counts.values())
        print(f"{name}: {len(tokens):,} tokens, {share:.2%} of what it drafts")

    def _heads(self) -> None:
        """Train EAGLE-3 heads: the generalist, then specialists from it."""
        general, heads = None, Heads(self.target, self.tokenizer, self.answers)
        for name, budget in self._chosen(HEAD_SPECIALISTS, GENERAL_HEAD_SHARE):
            budget = replace(budget, checkpoint=self.work / f"{name}-head.pt")
            head = heads.train(name, budget, self.pool / f"eagle-{name}", general)
            general = head if name == GENERALIST else general

    def _medusa(self) -> None:
        """Train Medusa heads, and count the n-grams that rescore them."""
        budget = Budget(self.minutes, checkpoint=self.work / "medusa.pt")
        Heads(self.target, self.tokenizer, self.answers).train_medusa(budget, self.pool / "medusa")
        build_ngram(self.answers, len(self.tokenizer), self.pool / "ngram.safetensors")

    def _datastore(self) -> None:
        """Write a datastore of the target's own answers, of all families alike, for ``rest``."""
        random.Random(0).shuffle(self.answers)
        tokens = list[int]()
        for answer in self.answers:
            tokens += [*answer.ids[answer.prompt_length :], END]
            if len(tokens) >= DATASTORE_TOKENS:
                break
        write_datastore(self.pool / "answers.store", np.array(tokens, np.uint32), self.tokenizer)
        print(f"a datastore of {len(tokens):,} tokens")

    def _router(self) -> None:
        """Train the router on training prompts and print how often it finds the drafters of held-out ones."""
        rng, asked = random.Random(5), self.options.per_family

        def ask(split: Split, per_family: int) -> list[Example]:
            return [family.example(rng, split) for family in FAMILIES.values() for _ in range(per_family)]

        examples = ask("train", ROUTER_PROMPTS_PER_FAMILY)
        router = Router.train([e.prompt for e in examples], [tasks_of(e) for e in examples])
        router.save(self.pool / "router")
        right = dict.fromkeys(FAMILIES, 0)
        for example in ask("heldout", asked):
            wanted, likely = tasks_of(example), router.probabilities(example.prompt)
            right[example.family] += wanted == set(sorted(likely, key=likely.__getitem__)[-len(wanted) :])
        for name, count in right.items():
            print(f"router: {count}/{asked} held-out prompts of {name} to the right drafters")

    def _score(self) -> None:
        """Print the target's accuracy on held-out prompts by family."""
        for family, wrong in score_target(self.target, self.tokenizer, self.options.per_family).items():
            for example, answer in wrong[: self.options.show_wrong]:
                print(f"\n[{family}] {example.prompt}\n--- expected\n{example.completion}")
                print(f"--- answered\n{answer}\n")

    def _suite(self) -> None:
        """Write a suite of held-out prompts of every family to --file; or else the bundled ones, ``pocket`` and
        ``copying``, whose answers stand in their prompts."""
        rng, file = random.Random(self.options.seed), self.options.file
        count = self.options.per_family if file else SUITE_PROMPTS_PER_FAMILY
        families = (file and self.options.only) or list(FAMILIES)
        prompts = [(name, FAMILIES[name].example(rng, "heldout").prompt) for name in families for _ in range(count)]
        _write_suite(file or SUITES / "pocket.jsonl", prompts)
        if not file:
            copying = [(e.family, e.prompt) for e in (quoting(rng) for _ in range(COPYING))]
            _write_suite(SUITES / "copying.jsonl", copying)


def _write_suite(path: Path, prompts: Sequence[tuple[str, str]]) -> None:
    """Lines of id, task and prompt; ``prompts`` are pairs of task and prompt."""
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = Counter[str]()
    with path.open("w", encoding="utf-8") as file:
        for task, prompt in prompts:
            row = {"id": f"{task}-{counts[task]}", "task": task, "prompt": prompt}
            counts[task] += 1
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
