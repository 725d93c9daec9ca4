"""Drafters for any target by self-distillation: its answers, a generalist that learns from all of them, specialists.

The specialist of a task begins as the generalist and goes on with the task's answers alone (MetaSD App. F.1).
"""

from __future__ import annotations

import copy
import random
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from drafters.checkpoints.loading import drafter_tokenizer, load_model, same_tokens
from drafters.checkpoints.model_sizes import window_of
from drafters.errors import TrainingError
from drafters.models.trainable_head import TrainableHead
from drafters.text import chat_ids, end_ids
from multidraft.bench.table import count
from multidraft.training.answers import Answer, answer_batches, collect, language_model_loss, pad_id
from multidraft.training.data import by_length, cached_features
from multidraft.training.eagle import common_tokens, fit_head, save_head
from multidraft.training.loop import Budget, train
from multidraft.training.plan import Plan, Shape, make_llama, place, skeleton
from multidraft.training.processes import ALONE, Processes
from multidraft.training.prompts import GENERALIST
from multidraft.training.work import SETTINGS, claim, writing

ANSWERS = "answers"
"""Folder of them in the working folder."""


class LanguageModels:
    """Small language models of the target's vocabulary, from a model that there is or from new weights."""

    def __init__(self, plan: Plan, tokenizer: PreTrainedTokenizerBase, processes: Processes):
        self.plan, self.tokenizer, self.processes = plan, tokenizer, processes

    def begin(self, own: Sequence[Answer], general: PreTrainedModel | None) -> PreTrainedModel:
        """A model to be trained on the answers ``own``, a copy of the generalist if there is one."""
        if general is not None:
            return copy.deepcopy(general)
        start, card, device = self.plan.start, self.plan.card, self.processes.device
        if isinstance(start, Shape):
            window = window_of(skeleton(self.plan.target, card)) or 8192
            return make_llama(self.tokenizer, max_position_embeddings=window, **start.settings).to(device)
        assert start is not None
        model = load_model(start, card, torch.float32, device, "the drafter")
        theirs = drafter_tokenizer(start, card)
        vocabulary = int(model.config.get_text_config().vocab_size)
        if (theirs and not same_tokens(theirs, self.tokenizer)) or vocabulary < len(self.tokenizer):
            raise TrainingError(
                f"the drafter {place(start)} has another vocabulary than the target ({vocabulary:,} tokens, "
                f"{len(self.tokenizer):,}), so it cannot learn from its distributions. Start from a model of the "
                "target's own family, or from new weights (--new 2x768)"
            )
        return model

    def fit(
        self, drafter: PreTrainedModel, own: Sequence[Answer], budget: Budget, lr: float, rng: random.Random
    ) -> None:
        """Train it until the budget is spent."""
        config, device = drafter.config.get_text_config(), self.processes.device
        window = window_of(drafter) or 1 << 30
        known = [within(answer, int(config.vocab_size)) for answer in own if len(answer.ids) <= window]
        fitting = [answer for answer in known if answer is not None]
        if not fitting:
            raise TrainingError(f"no answer fits the drafter's window of {window:,} tokens; lower --max-new-tokens")
        loss_of = language_model_loss(drafter, pad_id(self.tokenizer), device)
        batches = answer_batches(fitting, self.plan.batch_tokens, rng)
        train(drafter, batches, loss_of, budget, lr, processes=self.processes)

    def save(self, drafter: PreTrainedModel, folder: Path) -> None:
        """Write it as safetensors."""
        with writing(folder):
            copy.deepcopy(drafter).to("cpu", torch.bfloat16).save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)


class Heads:
    """EAGLE-3 heads on a target, with the methods of :class:`LanguageModels`."""

    def __init__(self, plan: Plan, target: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, processes: Processes):
        self.plan, self.target, self.tokenizer, self.processes = plan, target, tokenizer, processes

    def begin(self, own: Sequence[Answer], general: TrainableHead | None) -> TrainableHead:
        stops = sorted(end_ids(self.target, self.tokenizer))
        ids = common_tokens(own, self.plan.vocabulary, stops)
        head = TrainableHead(self.target, ids).to(self.processes.device)
        if general is not None:
            head.copy(general)
        return head

    def fit(self, drafter: TrainableHead, own: Sequence[Answer], budget: Budget, lr: float, rng: random.Random) -> None:
        batches, pad = by_length(own, self.plan.batch_tokens), pad_id(self.tokenizer)
        share = batches[self.processes.rank :: self.processes.count] or batches
        learnt = cached_features(self.target, share, drafter.layers, pad, rng, self.plan.feature_memory)
        fit_head(drafter, self.target, learnt, budget, lr, self.processes)

    def save(self, drafter: TrainableHead, folder: Path) -> None:
        save_head(drafter, folder)


def within(answer: Answer, vocabulary: int) -> Answer | None:
    """The answer for a drafter that knows the first ``vocabulary`` tokens; ``None`` if another stands in its text."""
    if max(answer.ids) >= vocabulary:
        return None
    known = (answer.top_ids < vocabulary).float() * answer.top_probs
    total = known.sum(dim=-1, keepdim=True).clamp_min(1e-9)
    return replace(answer, top_ids=answer.top_ids.clamp_max(vocabulary - 1), top_probs=known / total)


def train_all(recipe: LanguageModels | Heads, answers: Sequence[Answer]) -> None:
    """Train the generalist, if there are several tasks, then the specialists; write them into ``plan.out``."""
    plan, processes = recipe.plan, recipe.processes
    work = plan.work / plan.kind
    if processes.first:
        asked = (plan.work / ANSWERS / SETTINGS).read_bytes()
        claim(work, {**plan.trained_by(), "checksum of the answers' settings": f"{zlib.crc32(asked):08x}"})
    processes.wait()
    general: Any = None
    for name in plan.drafters:
        own = [answer for answer in answers if name in (GENERALIST, answer.family)]
        tokens = sum(len(answer.ids) for answer in own)
        stopped = sum(len(answer.top_ids) <= 1 for answer in own)  # at their first token
        empty = f" ({stopped:,} empty)" if stopped else ""
        processes.say(f"-- {name}: {count(len(own), 'answer')}{empty}, {tokens:,} tokens with their prompts")
        torch.manual_seed(plan.asking.seed)
        checkpoint = work / f"{name}.pt"
        padded = sum(len(batch) * len(batch[-1].ids) for batch in by_length(own, plan.batch_tokens))
        budget = Budget(plan.minutes, plan.epochs * padded, checkpoint)
        # A resumed drafter goes on with other batches than it began with.
        moment = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        rng = random.Random(f"{plan.asking.seed}/{processes.rank}/{moment}")
        drafter = recipe.begin(own, general)
        try:
            recipe.fit(drafter, own, budget, plan.lr if general is None else plan.lr / 2, rng)
        except torch.OutOfMemoryError:
            raise TrainingError(
                f"{processes.device} has too little memory to train {name!r} on {plan.batch_tokens:,} tokens a step: "
                "lower --batch-tokens and give the same command again"
            ) from None
        if processes.first:
            recipe.save(drafter, plan.out / name)
        if name == GENERALIST:
            general = drafter


def distil(plan: Plan, tokenizer: PreTrainedTokenizerBase, processes: Processes = ALONE) -> list[Answer]:
    """Let the target answer, and train drafters on its answers; what is done already is not done again.

    Returns:
        The answers.

    Raises:
        TrainingError: see :func:`~multidraft.training.answers.collect` and :class:`~multidraft.training.loop.train`.
    """

    @cache
    def target() -> PreTrainedModel:
        dtype = getattr(torch, plan.dtype)
        return load_model(plan.target, plan.card, dtype, processes.device, "the target").requires_grad_(False)

    room = (window_of(skeleton(plan.target, plan.card)) or 1 << 30) - plan.asking.max_new_tokens
    prompts = {}
    for name, task in plan.tasks.items():
        encoded = [chat_ids(tokenizer, prompt, settings=plan.chat_template_kwargs) for prompt in task.train]
        prompts[name] = [ids for ids in encoded if ids and len(ids) <= room]
        if longer := len(encoded) - len(prompts[name]):
            left_out = count(longer, "prompt")
            processes.say(f"{name}: {left_out} left out, without room for {plan.asking.max_new_tokens} new tokens")
        if not prompts[name]:
            raise TrainingError(f"no prompt of {name!r} leaves room for an answer; lower --max-new-tokens")
    answers = collect(target, tokenizer, prompts, plan.work / ANSWERS, plan.asking, plan.made_by(), processes)
    if plan.kind == "eagle":
        train_all(Heads(plan, target(), tokenizer, processes), answers)
    else:
        target.cache_clear()  # the drafters need its memory
        train_all(LanguageModels(plan, tokenizer, processes), answers)
    return answers
