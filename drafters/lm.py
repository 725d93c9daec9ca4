"""``lm``: a small causal LM with a key-value cache of its own (SpS: Leviathan et al. 2023, Chen et al. 2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch.nn import functional
from transformers import DynamicCache, LlamaForCausalLM, PreTrainedModel

from drafters.base import Drafter, Evidence, common_prefix
from drafters.teacher_forcing import follow, gamma_of, judge
from drafters.window import Window
from multidraft.draft import Draft
from multidraft.llama import LlamaStack, unsupported
from multidraft.sampling import SamplingParams, draw, probabilities


class LMDrafter(Drafter):
    """Drafts with a causal LM that shares the target's token ids.

    Args:
        name: the arm's name.
        model: where the logits come from.
        vocab_size: the target's vocabulary size; padded or missing rows of the drafter's are aligned to it.
        window: what it reads of long contexts; by default all that fits its model, and nothing longer.
        confidence: a greedy draft ends with the token at which the drafter's probabilities of its tokens, multiplied,
            fall below this. What is cut off had little chance of being accepted, and would have cost a step each.
            Sampled drafts run to their full length: a token that the drafter finds unlikely may be as likely to
            the target, and is then accepted.
    """

    kind = "lm"

    def __init__(
        self, name: str, model: _Model, vocab_size: int, window: Window | None = None, confidence: float = 0.0
    ):
        self.name = name
        self.model = model
        self.window = window or Window(model.window)
        self.vocab_size = vocab_size
        self.log_confidence = math.log(confidence) if confidence else -math.inf
        self.parameter_count = model.parameter_count
        self.cached: list[int] = []

    @classmethod
    def from_model(
        cls, name: str, model: PreTrainedModel, vocab_size: int, window: Window | None = None, confidence: float = 0.0
    ) -> LMDrafter:
        """A drafter that runs alone; see :func:`make_lm_drafters` for several of one shape."""
        return cls(name, _HubModel(model), vocab_size, window, confidence)

    def prepare(self, context: Sequence[int]) -> None:
        self.cached = []
        if self.window.covers(len(context)):
            self.logits(self.window.view(context)[:-1], last=1)

    def propose(
        self,
        context: Sequence[int],
        length: int,
        params: SamplingParams,
        generator: torch.Generator,
        *,
        with_q: bool = False,
    ) -> Draft:
        if not self.window.covers(len(context)):
            return Draft.empty()
        context = self.window.view(context)
        length = min(length, self.model.window - len(context) + 1)
        logits = self.logits(context, last=1)
        tokens: list[int] = []
        rows: list[torch.Tensor] = []
        sure = 0.0
        while len(tokens) < length and sure >= self.log_confidence:
            if tokens:
                logits = self._aligned(self.model(tokens[-1:], len(context) + len(tokens) - 1, 1))
                self.cached.append(tokens[-1])
            if params.greedy:
                tokens.append(int(logits[0].argmax()))
                if self.log_confidence > -math.inf:
                    row = logits[0].float()  # half precision is too coarse for probabilities near 1
                    sure += float(row[tokens[-1]] - row.logsumexp(dim=-1))
                if with_q:
                    rows.append(logits)
            else:
                rows.append(probabilities(logits, params))
                tokens.append(draw(rows[-1][0], generator))
        if not rows:
            return Draft.chain(tokens)
        q = torch.cat(rows)
        return Draft.chain(tokens, probabilities(q, params) if params.greedy else q, sampled=not params.greedy)

    def gamma(self, evidence: Evidence) -> np.ndarray:
        return judge(self.window, evidence, 1, self._gamma)[:, 0]

    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        return follow(
            self.window, context, start, length, [self.log_confidence], self._teacher_forced, self.model.window
        )[0]

    def _gamma(self, part: Evidence) -> np.ndarray:
        return gamma_of(self._teacher_forced(part), part)

    def _teacher_forced(self, part: Evidence) -> torch.Tensor:
        return self.logits(part.context[:-1], last=len(part))[None]

    def logits(self, context: Sequence[int], last: int) -> torch.Tensor:
        """Logits ``(last, V)`` after the last ``last`` tokens of ``context``; feeds only what the cache lacks."""
        if not context:
            return torch.empty(0, self.vocab_size)
        keep = min(common_prefix(self.cached, context), len(context) - last)
        self.cached = []  # a forward that breaks off leaves a cache that is good for nothing
        logits = self.model(list(context[keep:]), keep, last)
        self.cached = list(context)
        return self._aligned(logits)

    def _aligned(self, logits: torch.Tensor) -> torch.Tensor:
        missing = self.vocab_size - logits.shape[-1]
        return logits if missing == 0 else functional.pad(logits, (0, missing), value=-torch.inf)


class LMGroup:
    """LM drafters of one shape and window, evaluated in one stacked forward that also catches all of them up.

    What one member was fed for drafting is fed to it again here: the stack moves in step, and a few
    tokens twice cost less than a forward for each member.
    """

    def __init__(self, members: Sequence[LMDrafter], stack: LlamaStack):
        self.members = members
        self.stack = stack
        self.window = members[0].window
        for member in members:
            member.group = self

    def prepare(self, context: Sequence[int]) -> None:
        for member in self.members:
            member.cached = []
        if self.window.covers(len(context)):
            self._logits(self.window.view(context)[:-1], last=1)

    def gamma(self, evidence: Evidence) -> np.ndarray:
        return judge(self.window, evidence, len(self.members), self._gamma)

    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        confidences = [member.log_confidence for member in self.members]
        return follow(self.window, context, start, length, confidences, self._teacher_forced, self.stack.window)

    def _gamma(self, part: Evidence) -> np.ndarray:
        return gamma_of(self._teacher_forced(part), part)

    def _teacher_forced(self, part: Evidence) -> torch.Tensor:
        return self._logits(part.context[:-1], last=len(part))

    def _logits(self, context: Sequence[int], last: int) -> torch.Tensor:
        if not context:
            return torch.empty(len(self.members), 0, self.stack.vocab_size)
        keep = min(common_prefix(member.cached, context) for member in self.members)
        keep = min(keep, len(context) - last)
        ids = torch.tensor(context[keep:], device=self.stack.device)
        for member in self.members:
            member.cached = []
        logits = self.stack.forward(ids, keep, last=last)
        for member in self.members:
            member.cached = list(context)
        return logits


def make_lm_drafters(
    models: dict[str, PreTrainedModel],
    vocab_size: int,
    windows: dict[str, Window] | None = None,
    confidences: dict[str, float] | None = None,
) -> list[LMDrafter]:
    """Drafters for named models; plain small Llamas of one shape share a stack and are evaluated together.

    Args:
        windows: what drafters read of long contexts, by name; only those with the same window share a stack.
        confidences: how unsure drafters may get before their draft ends, by name; see :class:`LMDrafter`.
    """
    windows, confidences = windows or {}, confidences or {}
    drafters: dict[str, LMDrafter] = {}
    waiting = dict(models)
    while waiting:
        name, model = next(iter(waiting.items()))
        window = windows.get(name)
        same = {n: m for n, m in waiting.items() if windows.get(n) == window}
        alike = {n: m for n, m in same.items() if isinstance(model, LlamaForCausalLM) and not unsupported(m, model)}
        if alike and model.config.vocab_size == vocab_size:
            stack = LlamaStack([m for m in alike.values() if isinstance(m, LlamaForCausalLM)])
            members = [
                LMDrafter(n, _StackMember(stack, i), vocab_size, window, confidences.get(n, 0.0))
                for i, n in enumerate(alike)
            ]
            LMGroup(members, stack)
            drafters.update(zip(alike, members, strict=True))
        else:
            alike = {name: model}
            drafters[name] = LMDrafter.from_model(name, model, vocab_size, window, confidences.get(name, 0.0))
        waiting = {n: m for n, m in waiting.items() if n not in alike}
    return [drafters[name] for name in models]


class _Model(Protocol):
    """Logits of one model with a cache: feeding at ``start`` forgets what was cached from there on."""

    window: int
    parameter_count: int

    def __call__(self, ids: list[int], start: int, last: int) -> torch.Tensor: ...


class _StackMember:
    def __init__(self, stack: LlamaStack, index: int):
        self.stack, self.index = stack, index
        self.window, self.parameter_count = stack.window, stack.parameter_count

    def __call__(self, ids: list[int], start: int, last: int) -> torch.Tensor:
        return self.stack.forward(torch.tensor(ids, device=self.stack.device), start, self.index, last=last)[0]


class _HubModel:
    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.parameter_count = model.num_parameters()
        config = model.config.get_text_config()
        self.window = int(getattr(config, "max_position_embeddings", None) or 1 << 30)
        self.last_id = int(config.vocab_size) - 1
        self.cache, self.length = DynamicCache(), 0

    @torch.inference_mode()
    def __call__(self, ids: list[int], start: int, last: int) -> torch.Tensor:
        if start == 0:
            self.cache = DynamicCache()
        elif start < self.length:
            self.cache.crop(start - self.length)
        # Tokens of the target that a smaller vocabulary lacks stand as its last one.
        tokens = torch.tensor([ids], device=self.model.device).clamp_(max=self.last_id)
        output = self.model(
            input_ids=tokens,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=last,
        )
        self.length = start + len(ids)
        return output.logits[0]
