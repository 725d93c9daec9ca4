"""Drafts in PyTorch, each by one of several models of one shape: on a GPU a graph of all their steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import torch

from drafters.draft import Draft
from drafters.models.decoder import DraftOptions, aligned
from drafters.models.feeds import DraftFeed
from drafters.models.torch_layers import Fed
from drafters.models.torch_model import SPARE, Call, Program, TorchModel, fed_of, last_of
from drafters.models.torch_weights import Weights
from drafters.sampling import drawn, probabilities, uniforms

Asked = tuple[int, DraftFeed]
"""Which of the models is to draft, and what."""


class Drafts:
    """What drafts with the models of a stack, for any number of texts."""

    def __init__(self, stack: TorchModel):
        self._stack = stack

    def run(self, asked: Sequence[Asked]) -> list[Draft]:
        """Those of one kind by one model together, or by all models where that takes less than one after the other."""
        kinds: dict[Hashable, list[int]] = {}
        for place, (_, feed) in enumerate(asked):
            kinds.setdefault(feed.options.kind, []).append(place)
        drafts: dict[int, Draft] = {}
        for places in kinds.values():
            models = sorted({asked[place][0] for place in places})
            for model in [None] if self._pays(models) else models:
                these = [place for place in places if model is None or asked[place][0] == model]
                drafts |= zip(these, self._drafted([asked[place] for place in these], model), strict=True)
        return [drafts[place] for place in range(len(asked))]

    def _pays(self, models: Sequence[int]) -> bool:
        """Whether all models together take less time than these in turn: each adds a quarter to the time of one."""
        stack = self._stack
        return stack.static and stack.kernels.scattered and len(models) > 1 + (len(stack.models) - 1) / 4

    @torch.inference_mode()
    def _drafted(self, asked: Sequence[Asked], model: int | None) -> list[Draft]:
        feeds = [feed for _, feed in asked]
        if len(feeds) > 1 and max(len(feed.ids) for feed in feeds) > SPARE:
            return [self._drafted([each], each[0])[0] for each in asked]
        stack, like, steps = self._stack, feeds[0].options, max(feed.options.length for feed in feeds)
        call, places = stack.call(asked, model, steps, (*like.kind, steps))
        program = stack.program(call, lambda call: self._program(call, like, steps))
        program.numbers.copy_(stack.numbers(call, asked, places), non_blocking=True)
        if program.noise is not None:
            for feed, (row, _) in zip(feeds, places, strict=True):
                options = feed.options
                program.noise[row, : options.length] = uniforms(options.length, options.generator)
        found, q = program.run()
        drafts, rows = [], found.tolist()  # the only wait for the device
        for feed, (row, _) in zip(feeds, places, strict=True):
            tokens = [token for token in rows[row][: feed.options.length] if token >= 0]
            own = None if q is None else q[row, : len(tokens)].clone()
            drafts.append(Draft.chain(tokens, own, sampled=not like.params.greedy))
        return drafts

    def _program(self, call: Call, like: DraftOptions, steps: int) -> Program:
        width, params, vocab_size, rows = call.width, like.params, like.vocab_size, self._stack.rows(call)
        noise = None
        if not params.greedy:
            noise = torch.zeros(rows, steps, dtype=torch.float64, device=self._stack.device)

        def draft(
            run: Callable[[Fed], torch.Tensor], given: torch.Tensor, weights: Weights
        ) -> tuple[torch.Tensor, torch.Tensor | None]:
            first = fed_of(given, width)
            x = last_of(run(first), given, width)
            length = given[:, width + 2 : width + 3]
            start, places = first.start + length, first.places + length
            tokens: list[torch.Tensor] = []  # in this form the tracer of torch.compile knows it
            chances: list[torch.Tensor] = []
            scores: list[torch.Tensor] = []
            for step in range(steps):
                logits = aligned(weights.head(x).view(rows, -1), vocab_size)
                if noise is None:
                    token = logits.argmax(dim=-1, keepdim=True)
                else:
                    logits = probabilities(logits, params)
                    token = drawn(logits, noise[:, step])[:, None]
                tokens.append(token)
                scores.append(logits)
                if like.log_confidence > -np.inf:
                    wide = logits.float() if noise is None else logits.log()
                    chances.append(wide.gather(-1, token) - wide.logsumexp(dim=-1, keepdim=True))
                if step + 1 < steps:
                    x = run(Fed(token, start + step, places + step, first.bases))
            found = torch.cat(tokens, dim=1)
            if chances:
                sure = torch.cat(chances, dim=1).double().cumsum(dim=1)
                found[:, 1:].masked_fill_(sure[:, :-1] < like.log_confidence, -1)
            if noise is None and not like.with_q:
                return found, None
            q = torch.stack(scores, dim=1)
            return found, probabilities(q, params) if noise is None else q

        return self._stack.made(call, draft, noise)
