"""Random pools of a few kilobytes: a target of some architecture on some runtime, and every kind of drafter for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import yaml
from transformers import PreTrainedModel

from drafters.models import eagle_head, runtimes
from drafters.models.runtimes import HubDecoder
from drafters.pool import Pool, load_pool
from tests import kinds, tiny

OWN = """
import torch
from drafters.base import Drafter
from drafters.draft import Draft
from drafters.proposing import PointMassDrafter, ProposingDrafter
from drafters.sampling import draw, probabilities

class Bigrams(ProposingDrafter):
    "Samples from a table of made-up bigrams."
    def __init__(self, name, target, tokenizer, seed=0):
        V = target.vocab_size
        self.logits = 2.0 * torch.randn(V, V, generator=torch.Generator().manual_seed(seed))

    def propose(self, context, length, params, generator, *, with_q=False):
        tokens, rows = [], []
        for _ in range(length):
            row = self.logits[[*context, *tokens][-1]]
            rows.append(probabilities(row, params))
            tokens.append(int(row.argmax()) if params.greedy else draw(rows[-1], generator))
        q = torch.stack(rows) if with_q or not params.greedy else None
        return Draft.chain(tokens, q, sampled=not params.greedy)

    def gamma(self, evidence):
        rows = self.logits[list(evidence.context[evidence.start - 1 : -1])]
        if evidence.p is None:
            hits = rows.argmax(dim=-1) == torch.tensor(list(evidence.context[evidence.start :]))
            return hits.double().numpy()
        q = probabilities(rows, evidence.params)
        return torch.minimum(evidence.p.cpu(), q).sum(dim=-1).clamp(0, 1).double().numpy()

class Hostile(Bigrams):
    "Proposes as Bigrams do, and breaks every rule now and then."
    def propose(self, context, length, params, generator, *, with_q=False):
        draft = super().propose(context, length, params, generator, with_q=with_q)
        what = hash((len(context), *context[-3:])) % 40
        generator.manual_seed(0)
        context.clear()
        if what == 0:
            raise SystemExit("enough")
        if what == 1:
            return self.propose([1, 2, *range(10)], length + 1, params, generator, with_q=with_q)
        if what == 2:
            return Draft.chain([99] * length)
        if what == 3:
            return Draft.chain([1.5] * length)
        if what == 4:
            return "abc"
        if draft.q is not None and what < 9:
            q = [draft.q * float("nan"), 0 * draft.q, -draft.q, draft.q[:, :5]][what - 5]
            return Draft(draft.tokens, draft.parents, q, draft.sampled)
        return draft

    def gamma(self, evidence):
        gamma = super().gamma(evidence)
        return gamma if len(evidence.context) % 5 else gamma * float("nan")

class Bush(PointMassDrafter):
    "Proposes trees without sense."
    def __init__(self, name, target, tokenizer):
        self.vocabulary = target.vocab_size

    def draft(self, context, length):
        tokens, parents, depths = [], [], []
        for node in range(2 * length):
            parent = hash((node, *context[-2:])) % (node + 1) - 1
            if parent >= 0 and depths[parent] == length:
                parent = -1
            tokens.append(hash((node, context[-1])) % self.vocabulary)
            parents.append(parent)
            depths.append(depths[parent] + 1 if parent >= 0 else 1)
        return Draft(tuple(tokens), tuple(parents))
"""
CUSTOM: list[dict[str, Any]] = [
    {"name": "bigrams", "kind": "custom", "path": "own.py", "factory": "Bigrams"},
    {"name": "bush", "kind": "custom", "path": "own.py", "factory": "Bush"},
    {"name": "hostile", "kind": "custom", "path": "own.py", "factory": "Hostile"},
]
SIMPLE: list[dict[str, Any]] = [
    {"name": "near", "kind": "lm", "path": "near"},
    {"name": "unlike", "kind": "lm", "path": "alone"},
    {"name": "lookup", "kind": "pld"},
    {"name": "suffix-tree", "kind": "suffix", "nodes": 8, "confidence": 0, "past": 0},
    {"name": "keeping", "kind": "suffix", "past": 2000},
    {"name": "lookahead", "kind": "lookahead"},
]
"""Kinds that any target can have."""


class World:
    """A pool.

    Attributes:
        family: architecture of the target.
        runtime: one of ``tiny.RUNTIMES``, for the target; the small models have theirs.
    """

    def __init__(self, seed: int, folder: Path, runtime: str | None = None):
        random = Random(seed)
        self.family, possible = random.choice(tiny.KINDS_BY_RUNTIME).split(":")
        if runtime is not None or random.random() < 0.6:
            self.family, possible = "llama", random.choice(list(tiny.RUNTIMES))
        self.runtime = runtime or possible
        with on_runtime(self.runtime, random.choice(["onnx", "torch", "hub"])):
            self.pool = self._llama(seed, folder) if self.family == "llama" else self._other(seed, folder)
        self.pool.router = Anybody()  # type: ignore[assignment]

    def _llama(self, seed: int, folder: Path) -> Pool:
        card = kinds.write_pool(folder, seed)
        content = yaml.safe_load(card.read_text())
        return kinds.load(_with(card, [*content["drafters"], *CUSTOM]))

    def _other(self, seed: int, folder: Path) -> Pool:
        card = tiny.write_pool(folder)
        target = tiny.causal_lm(self.family, seed)
        target.save_pretrained(folder / "target")
        tiny.blend(tiny.causal_lm(self.family, seed + 1), target, 0.1).save_pretrained(folder / "near")
        return load_pool(_with(card, [*SIMPLE, *CUSTOM]))


def _with(card: Path, drafters: list[dict[str, Any]]) -> Path:
    card.with_name("own.py").write_text(OWN)
    return tiny.change_card(card, drafters=drafters)


class Anybody:
    """A router with an opinion on every prompt."""

    def suited(self, prompt: str, drafters: list[str]) -> list[float]:
        return [Random(f"{prompt}{name}").random() for name in drafters]


@contextmanager
def on_runtime(target: str, drafters: str) -> Iterator[None]:
    """Load models on these runtimes; those that one cannot run on ``transformers``' own. Heads are drafters."""

    def chosen(model: PreTrainedModel) -> str:
        return drafters if found(model) != "hub" else "hub"

    found: Callable[[PreTrainedModel], str] = runtimes._runtime
    decoder_of = tiny.RUNTIMES[target]
    heads_on = nullcontext() if drafters == "onnx" else patch.object(eagle_head, "unsupported", lambda *_: "as asked")
    with (
        heads_on,
        patch.object(runtimes, "_runtime", chosen),
        patch(
            "drafters.models.target.decoder_for", lambda m, **_: decoder_of(m) if found(m) != "hub" else HubDecoder(m)
        ),
    ):
        yield
