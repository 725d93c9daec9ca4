"""What a training of drafters for some target is to do, and whether the machine can."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from drafters.checkpoints import model_sizes
from drafters.errors import PoolError, TrainingError
from drafters.hardware import total_memory
from drafters.kinds.student import TRAINING_BYTES
from drafters.models.trainable_head import TrainableHead
from drafters.source import Source
from multidraft.training.answers import BYTES_PER_TOKEN, Asking
from multidraft.training.prompts import GENERALIST, TaskPrompts

Kind = Literal["lm", "eagle"]
LONG_CONTEXT = 8192
"""Tokens of the contexts that a finished pool is made for, if the target knows as many."""


@dataclass(frozen=True)
class Shape:
    """A new Llama of so many layers and numbers per hidden state; MetaSD's drafters are of 2 x 768 (App. F.2)."""

    layers: int
    width: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        """From ``LAYERSxWIDTH``.

        Raises:
            TrainingError: it is not of that form, or the width no multiple of 8.
        """
        layers, mark, width = text.lower().partition("x")
        digits = mark and layers.isdecimal() and width.isdecimal()
        if not digits or int(layers) < 1 or int(width) < 8 or int(width) % 8:
            raise TrainingError(f"--new {text!r} should be LAYERSxWIDTH, e.g. 2x768; the width a multiple of 8")
        return cls(int(layers), int(width))

    @property
    def settings(self) -> dict[str, int]:
        """Of a ``LlamaConfig``: heads of 64 numbers, a feed-forward block of 8/3 of the width."""
        heads = self.width // 64 if self.width % 64 == 0 else 4
        inner = max(8, 32 * round(8 * self.width / 3 / 32))
        return {
            "hidden_size": self.width,
            "intermediate_size": inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
        }


def make_llama(
    tokenizer: PreTrainedTokenizerBase, max_position_embeddings: int = 1024, **shape: int
) -> LlamaForCausalLM:
    """A Llama with tied embeddings and random weights, with the vocabulary of ``tokenizer``."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
        initializer_range=0.02,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        max_position_embeddings=max_position_embeddings,
        **shape,
    )
    return LlamaForCausalLM(config)


@dataclass(frozen=True)
class Plan:
    """Everything a training depends on.

    Attributes:
        target: folder or Hub repository.
        start: of kind ``lm``: the model that drafters start from, or the shape of new ones.
        out: folder of the finished pool.
        work: folder of answers and checkpoints.
        minutes, epochs: of each drafter; whichever is over first.
        lr: peak learning rate of the generalist; specialists, which start from it, take half.
        batch_tokens: trained on in a step, padding included.
        vocabulary: most tokens that a head can propose.
        feature_memory: bytes of the target's hidden states that a head's training keeps.
        evaluate: held-out prompts of a task that the finished pool is measured on.
        chat_template: Jinja text, instead of the template of the target's tokenizer.
        chat_template_kwargs: what the template is given besides the messages.
    """

    target: Source
    kind: Kind
    start: Source | Shape | None
    tasks: Mapping[str, TaskPrompts]
    out: Path
    work: Path
    asking: Asking = field(default_factory=Asking)
    minutes: float = 60.0
    epochs: float = 3.0
    lr: float = 1e-4
    batch_tokens: int = 4096
    vocabulary: int = 16_000
    feature_memory: int = 4 * 2**30
    evaluate: int = 5
    draft_length: int = 6
    chat_template: str | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str = "cpu"

    @property
    def card(self) -> Path:
        """The pool's card."""
        return self.out / "card.yaml"

    @property
    def drafters(self) -> list[str]:
        """Names in the order of their training: of several tasks the generalist first."""
        return [GENERALIST, *self.tasks] if len(self.tasks) > 1 else list(self.tasks)

    def made_by(self) -> dict[str, Any]:
        """What the answers depend on, besides prompts and how they are asked."""
        made = {"target": place(self.target), "revision": self.target.revision, "dtype": self.dtype}
        return made | self.chat_form()

    def chat_form(self) -> dict[str, Any]:
        """How prompts are put to the target, in a card's words, as far as its tokenizer does not say it."""
        form = {"chat_template": self.chat_template, "chat_template_kwargs": dict(self.chat_template_kwargs)}
        return {setting: value for setting, value in form.items() if value}

    def trained_by(self) -> dict[str, Any]:
        """What checkpoints of drafters depend on, besides the answers; budgets and batches may be changed."""
        start = self.start
        named = f"new, {start.layers}x{start.width}" if isinstance(start, Shape) else start and place(start)
        own = {"kind": self.kind, "drafter": named, "drafters": self.drafters, "lr": self.lr}
        return own | {"vocabulary": self.vocabulary, "seed": self.asking.seed}


def place(source: Source) -> str:
    """The folder or the Hub repository of a model."""
    return source.path or str(source.id)


def source_of(text: str, revision: str | None = None) -> Source:
    """A model's folder, or else its Hub repository.

    Raises:
        TrainingError: there is no such folder, and no repository can be called so.
    """
    if os.path.isdir(text):
        return Source.model_validate({"path": str(Path(text).resolve())})
    if text.count("/") > 1 or text.startswith((".", "/", "~")) or not text.strip("/ "):
        raise TrainingError(f"there is no folder {text}; give a model's folder or its name on the Hub, OWNER/NAME")
    return Source.model_validate({"id": text, "revision": revision})


def skeleton(source: Source, card: Path) -> PreTrainedModel:
    """The model without its weights, for its shape; nothing is fetched but its configuration.

    Raises:
        TrainingError: it has no configuration that can be read.
    """
    try:
        return model_sizes.skeleton(*model_sizes.config_of(source, card))
    except PoolError as error:
        raise TrainingError(
            f"{error}. The target and what drafters start from must be causal language models"
        ) from error


def context_window(plan: Plan) -> int:
    """What the finished pool's contexts may hold: not all that a large target knows, whose cache would fill a GPU."""
    most = max(LONG_CONTEXT, 2 * plan.asking.max_new_tokens)
    return min(model_sizes.window_of(skeleton(plan.target, plan.card)) or most, most)


def drafter_parameters(plan: Plan, target: PreTrainedModel) -> int:
    """Parameters of a drafter in training; of a head at its largest vocabulary."""
    vocabulary = int(target.config.get_text_config().vocab_size)
    if isinstance(plan.start, Source):
        return skeleton(plan.start, plan.card).num_parameters()
    if isinstance(plan.start, Shape):
        config = LlamaConfig(vocab_size=vocabulary, tie_word_embeddings=True, **plan.start.settings)
        with torch.device("meta"):
            return LlamaForCausalLM(config).num_parameters()
    with torch.device("meta"):
        head = TrainableHead(target, torch.zeros(min(plan.vocabulary, vocabulary), dtype=torch.long))
    return sum(parameter.numel() for parameter in head.parameters())


def examine(plan: Plan, processes: int = 1) -> str:
    """What would be done, in a few lines.

    Raises:
        TrainingError: the device cannot hold the models at their training, whatever the batches.
    """
    target = skeleton(plan.target, plan.card)
    target_bytes = target.num_parameters() * getattr(torch, plan.dtype).itemsize
    parameters = drafter_parameters(plan, target)
    training = parameters * TRAINING_BYTES + (target_bytes if plan.kind == "eagle" else 0)
    need, has = max(target_bytes, training), total_memory(plan.device)
    if plan.device == "cpu":
        need *= processes
    if has is not None and need > has:
        raise TrainingError(
            f"{plan.device} has {has / 1e9:.1f} GB of memory; the target takes {target_bytes / 1e9:.1f} GB in "
            f"{plan.dtype}, the training of a drafter {training / 1e9:.1f} GB. Take a smaller drafter or another device"
        )
    rows = [f"{name:<20} {len(task.train):>9,} {len(task.heldout):>9,}" for name, task in plan.tasks.items()]
    answers = sum(len(task.train) for task in plan.tasks.values()) * len(plan.asking.temperatures)
    tokens = answers * plan.asking.max_new_tokens
    size_of_target, size_of_drafter = (f"{n / 1e6:,.1f}M" for n in (target.num_parameters(), parameters))
    table = "\n".join([f"{'task':<20} {'train':>9} {'held out':>9}", *rows])
    text = f"""{table}
target: {place(plan.target)}, {size_of_target} parameters, {target_bytes / 1e9:.2f} GB \
in {plan.dtype} on {plan.device}
answers: {answers:,} at temperatures {plan.asking.listed}; at most {tokens:,} tokens, \
{tokens * BYTES_PER_TOKEN / 1e9:.2f} GB in {plan.work}
drafters: {", ".join(plan.drafters)}; of kind {plan.kind}, {size_of_drafter} parameters each; \
{training / 1e9:.2f} GB in training
training: at most {plan.minutes:g} min or {plan.epochs:g} {"epoch" if plan.epochs == 1 else "epochs"} each, \
{len(plan.drafters) * plan.minutes:g} min in all{f", by {processes} processes" if processes > 1 else ""}
These minutes are of training alone. Answering the prompts comes before it and takes as long as the target needs for \
its tokens; measuring the drafters on held-out prompts comes after it."""
    if parameters > target.num_parameters():
        text += f"""
warning: a drafter has more parameters than the target ({size_of_drafter}, {size_of_target}), so that its drafts cost \
more than they save: take a smaller one"""
    return text
