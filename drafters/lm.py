"""``lm``: a small causal LM with a key-value cache of its own (SpS: Leviathan et al. 2023, Chen et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch.nn import functional
from transformers import DynamicCache, LlamaForCausalLM, PreTrainedModel

from drafters.base import Drafter, Evidence, common_prefix
from multidraft.draft import Draft
from multidraft.feedback import greedy_gamma, sampled_gamma
from multidraft.llama import LlamaStack, unsupported
from multidraft.sampling import SamplingParams, draw, probabilities


class LMDrafter(Drafter):
    """Drafts with a causal LM that shares the target's token ids.

    Args:
        name: the arm's name.
        model: where the logits come from.
        vocab_size: the target's vocabulary size; padded or missing rows of the drafter's are aligned to it.
    """

    kind = "lm"

    def __init__(self, name: str, model: _Model, vocab_size: int):
        self.name = name
        self.model = model
        self.vocab_size = vocab_size
        self.parameter_count = model.parameter_count
        self.cached: list[int] = []

    @classmethod
    def from_model(cls, name: str, model: PreTrainedModel, vocab_size: int) -> LMDrafter:
        """A drafter that runs alone; see :func:`make_lm_drafters` for several of one shape."""
        return cls(name, _HubModel(model), vocab_size)

    def prepare(self, context: Sequence[int]) -> None:
        self.cached = []
        if len(context) <= self.model.window:  # beyond, it will have nothing to say
            self.logits(context[:-1], last=1)

    def propose(
        self,
        context: Sequence[int],
        length: int,
        params: SamplingParams,
        generator: torch.Generator,
        *,
        with_q: bool = False,
    ) -> Draft:
        length = min(length, self.model.window - len(context) + 1)
        if length < 1:
            return Draft.empty()
        logits = self.logits(context, last=1)
        tokens: list[int] = []
        rows: list[torch.Tensor] = []
        for _ in range(length):
            if tokens:
                logits = self._aligned(self.model(tokens[-1:], len(context) + len(tokens) - 1, 1))
                self.cached.append(tokens[-1])
            if params.greedy:
                tokens.append(int(logits[0].argmax()))
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
        gamma = np.zeros(len(evidence))
        if seen := evidence.within(self.model.window):
            logits = self.logits(seen.context[:-1], last=len(seen))
            gamma[: len(seen)] = gamma_of(logits[None], seen)[:, 0]
        return gamma

    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        evidence = Evidence(context, start, None, SamplingParams())
        return run_lengths(self.gamma(evidence) > 0, length)

    def logits(self, context: Sequence[int], last: int) -> torch.Tensor:
        """Logits ``(last, V)`` after the last ``last`` tokens of ``context``; feeds only what the cache lacks."""
        if not context:
            return torch.empty(0, self.vocab_size)
        keep = min(common_prefix(self.cached, context), len(context) - last)
        logits = self.model(list(context[keep:]), keep, last)
        self.cached = list(context)
        return self._aligned(logits)

    def _aligned(self, logits: torch.Tensor) -> torch.Tensor:
        missing = self.vocab_size - logits.shape[-1]
        return logits if missing == 0 else functional.pad(logits, (0, missing), value=-torch.inf)


class LMGroup:
    """LM drafters of one shape, evaluated in one stacked forward that also catches all of them up.

    What one member was fed for drafting is fed to it again here: the stack moves in step, and a few
    tokens twice cost less than a forward for each member.
    """

    def __init__(self, members: Sequence[LMDrafter], stack: LlamaStack):
        self.members = members
        self.stack = stack
        for member in members:
            member.group = self

    def prepare(self, context: Sequence[int]) -> None:
        for member in self.members:
            member.cached = []
        if len(context) <= self.stack.window:
            self._logits(context[:-1], last=1)

    def gamma(self, evidence: Evidence) -> np.ndarray:
        gamma = np.zeros((len(evidence), len(self.members)))
        if seen := evidence.within(self.stack.window):
            gamma[: len(seen)] = gamma_of(self._logits(seen.context[:-1], last=len(seen)), seen)
        return gamma

    def acceptances(self, context: Sequence[int], start: int, length: int) -> np.ndarray:
        hits = self.gamma(Evidence(context, start, None, SamplingParams())) > 0
        return np.stack([run_lengths(column, length) for column in hits.T])

    def _logits(self, context: Sequence[int], last: int) -> torch.Tensor:
        if not context:
            return torch.empty(len(self.members), 0, self.stack.vocab_size)
        keep = min(common_prefix(member.cached, context) for member in self.members)
        keep = min(keep, len(context) - last)
        ids = torch.tensor(context[keep:], device=self.stack.device)
        logits = self.stack.forward(ids, keep, last=last)
        for member in self.members:
            member.cached = list(context)
        return logits


def make_lm_drafters(models: dict[str, PreTrainedModel], vocab_size: int) -> list[LMDrafter]:
    """Drafters for named models; plain small Llamas of one shape share a stack and are evaluated together."""
    drafters: dict[str, LMDrafter] = {}
    waiting = dict(models)
    while waiting:
        name, model = next(iter(waiting.items()))
        alike = {n: m for n, m in waiting.items() if isinstance(model, LlamaForCausalLM) and not unsupported(m, model)}
        if alike and model.config.vocab_size == vocab_size:
            stack = LlamaStack([m for m in alike.values() if isinstance(m, LlamaForCausalLM)])
            members = [LMDrafter(n, _StackMember(stack, i), vocab_size) for i, n in enumerate(alike)]
            LMGroup(members, stack)
            drafters.update(zip(alike, members, strict=True))
        else:
            alike = {name: model}
            drafters[name] = LMDrafter.from_model(name, model, vocab_size)
        waiting = {n: m for n, m in waiting.items() if n not in alike}
    return [drafters[name] for name in models]


def gamma_of(logits: torch.Tensor, evidence: Evidence) -> np.ndarray:
    """γ ``(m, N)`` from teacher-forced drafter logits ``(N, m, V)``."""
    if evidence.p is None:
        emitted = torch.tensor(evidence.context[evidence.start :], device=logits.device)
        return greedy_gamma(logits.argmax(dim=-1), emitted)
    return sampled_gamma(evidence.p, probabilities(logits, evidence.params))


def run_lengths(hits: np.ndarray, length: int) -> np.ndarray:
    """How many hits follow each other from each position on, at most ``length``.

    A greedy draft follows the recorded text exactly as long as its teacher-forced predictions are hits,
    for until then both see the same context: the acceptance table needs no drafting at all (SPEC 6).
    """
    runs = np.zeros(len(hits) + 1, dtype=np.int64)
    for s in range(len(hits) - 1, -1, -1):
        runs[s] = runs[s + 1] + 1 if hits[s] else 0
    return np.minimum(runs[:-1], length)


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
