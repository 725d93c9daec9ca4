"""Plain decoders in PyTorch with the caches of the texts that they read: on a GPU a few CUDA graphs, else one forward.

On a GPU inputs are padded to a few widths, and attention spans the cache up to the next power of two, so that there
are few graphs. Of a forward the logits stay on the device; of a draft, which is one graph, token ids come back.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from drafters.draft import Draft
from drafters.hardware import sent
from drafters.models.attention import rotation_table
from drafters.models.cuda_graph import Graphs, Replayed
from drafters.models.drafting import DraftOptions, aligned
from drafters.models.feeds import Answer, DraftFeed, Feed
from drafters.models.torch_layers import Cache, Fed, Tree, run
from drafters.models.torch_weights import Weights, weights_of
from drafters.models.triton_layers import kernels_for
from drafters.sampling import drawn, probabilities, uniforms

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
"""To so many tokens inputs are padded on a GPU; longer ones (prompts) are run as they are."""

SPARE = WIDTHS[-1]
"""Positions that padding may write, behind those of each text."""

LEAST_ROOM, LEAST_SPAN = 512, 256

HELD_PROGRAMS = 256
"""So many graphs are kept, those used last."""


@dataclass(frozen=True)
class _Call:
    """The shape of a forward or a draft, as far as it matters.

    Attributes:
        model: which one; ``None`` for all.
        first, texts: the slots.
        width: tokens fed.
        span: positions that attention looks at.
        bare: as of :func:`~drafters.models.torch_layers.run`.
        kind: what else it depends on.
    """

    model: int | None
    first: int
    texts: int
    width: int
    span: int
    tree: bool
    bare: bool
    kind: Hashable


@dataclass(frozen=True)
class _Program:
    """A function of static inputs: ``numbers`` as :meth:`TorchModel._numbers` lays them out, and by text and step the
    uniform numbers ``noise`` that tokens are drawn with."""

    numbers: torch.Tensor
    noise: torch.Tensor | None
    run: Callable[[], Any]


class TorchModel:
    """N models of one shape, and key-value caches in slots, one for each text.

    The caches are one buffer that is written in place, so rolling back is forgetting a number.

    Args:
        models: those that :func:`~drafters.models.torch_decoder.unsupported` has nothing against; their parameters
            become views of what is held here.
        static: whether inputs and spans are padded to a few sizes, as CUDA graphs need it; by default on a GPU.
    """

    def __init__(self, models: Sequence[PreTrainedModel], *, static: bool | None = None):
        self.models, config = models, models[0].config
        self.window, self.vocab_size = int(config.max_position_embeddings), int(config.vocab_size)
        self.parameter_count = models[0].num_parameters()
        self.weights = weights_of(models)
        self.each = [self.weights.of(index) for index in range(len(models))]
        self.device = self.weights.embedding.device
        self.static = self.device.type == "cuda" if static is None else static
        self._graphs = Graphs(self.device)
        self._rotary = models[0].model.rotary_emb
        self._kernels = kernels_for(self.each[0], self._rotary)
        size = 2 * self.weights.kv_heads, self.weights.head_size
        self._cache = self.weights.embedding.new_empty(len(self.weights.layers), 0, len(models), 0, *size)
        """Keys, then values: ``(layers, slots, models, room, 2 kv heads, head size)``."""
        self._free: list[int] = []
        self._slots = itertools.count()
        self._written: dict[int, list[int]] = {}
        """How many positions are cached of each slot that is taken, by model."""
        self._programs: dict[_Call, _Program] = {}

    def take_slot(self) -> int:
        """A cache for one more text; the lowest that is free, since forwards span all between those they are for."""
        try:  # not asked first whether there is one: other threads may take slots too
            slot = heapq.heappop(self._free)
        except IndexError:
            slot = next(self._slots)
        self._written[slot] = [0] * len(self.models)
        return slot

    def release_slot(self, slot: int) -> None:
        """Take a cache back; its memory is given back when room is made for others."""
        self._written.pop(slot, None)
        heapq.heappush(self._free, slot)

    @torch.inference_mode()
    def keep(self, slot: int, start: int, kept: Sequence[int]) -> None:
        """As :meth:`~drafters.models.decoder.Decoder.keep`; of all models."""
        if kept[-1:] != [len(kept) - 1]:  # of a chain the first ones are kept, which are where they belong
            places = sent(torch.tensor(kept) + start, self.device)
            self._cache[:, slot, :, start : start + len(kept)] = self._cache[:, slot].index_select(2, places)

    @torch.inference_mode()
    def forward(self, feeds: Sequence[Feed], model: int | None) -> list[Answer]:
        """One forward of several texts by a model, or of one text by all of them.

        Returns:
            For each text logits ``(last, V)`` and hidden states ``(T, hidden)``; of all models ``(N, last, V)`` and
            ``(N, T, hidden)``.
        """
        if len(feeds) > 1 and max(len(feed.ids) for feed in feeds) > SPARE:  # too many to be padding for the others
            return [self._copied(self.forward([feed], model)[0]) for feed in feeds]
        single, capture = all(feed.last == 1 for feed in feeds), tuple(sorted({i for f in feeds for i in f.capture}))
        call = self._call(feeds, model, 0, (single, capture))
        program = self._program(call, lambda call: self._forward_program(call, single, capture))
        program.numbers.copy_(self._numbers(call, feeds), non_blocking=True)
        logits, hidden = program.run()
        answers = []
        for feed in feeds:
            row, length = slice(None) if model is None else feed.slot - call.first, len(feed.ids)
            rows = logits[row] if single else logits[row][..., length - feed.last : length, :]
            answers.append(Answer(rows, {layer: hidden[layer][row][..., :length, :] for layer in feed.capture}))
        return answers

    @torch.inference_mode()
    def draft(self, feeds: Sequence[DraftFeed], model: int) -> list[Draft]:
        """Drafts of several texts, of one kind, by a model."""
        if len(feeds) > 1 and max(len(feed.ids) for feed in feeds) > SPARE:
            return [self.draft([feed], model)[0] for feed in feeds]
        like, steps = feeds[0].options, max(feed.options.length for feed in feeds)
        call = self._call(feeds, model, steps, (*like.kind, steps))
        program = self._program(call, lambda call: self._draft_program(call, like, steps))
        program.numbers.copy_(self._numbers(call, feeds), non_blocking=True)
        if program.noise is not None:
            for feed in feeds:
                options = feed.options
                program.noise[feed.slot - call.first, : options.length] = uniforms(options.length, options.generator)
        found, q = program.run()
        drafts, rows = [], found.tolist()  # the only wait for the device
        for feed in feeds:
            row = feed.slot - call.first
            tokens = [token for token in rows[row][: feed.options.length] if token >= 0]
            own = None if q is None else q[row, : len(tokens)].clone()
            drafts.append(Draft.chain(tokens, own, sampled=not like.params.greedy))
        return drafts

    def _call(self, feeds: Sequence[Feed | DraftFeed], model: int | None, steps: int, kind: Hashable) -> _Call:
        """The shape of a forward of these, after making room for it; ``steps`` of a draft follow."""
        first, last = min(feed.slot for feed in feeds), max(feed.slot for feed in feeds)
        longest, end = max(len(feed.ids) for feed in feeds), max(feed.start + len(feed.ids) for feed in feeds) + steps
        self._make_room(last + 1, end)
        members = range(len(self.models)) if model is None else (model,)
        for feed, member in itertools.product(feeds, members):
            self._written[feed.slot][member] = feed.start + len(feed.ids) + steps
        tree = any(isinstance(feed, Feed) and feed.mask is not None for feed in feeds)
        start, texts, padded = feeds[0].start, last + 1 - first, self.static and longest <= SPARE
        width = next(width for width in WIDTHS if width >= longest) if padded else longest
        if padded:
            span = LEAST_SPAN
            while span < max(end, max(feed.start for feed in feeds) + width):
                span *= 2
            return _Call(model, first, texts, width, min(span, self._cache.shape[3]), tree, False, kind)
        alone = len(feeds) == 1 and not steps and not tree
        hides = (window := self.weights.sliding_window) is not None and window < end
        return _Call(model, first, texts, width, end, tree, alone and not hides and (start == 0 or width == 1), kind)

    def _numbers(self, call: _Call, feeds: Sequence[Feed | DraftFeed]) -> torch.Tensor:
        """What the forward of a call reads, ``(texts, …)``: ids, cached positions, where to write, how many tokens; of
        a tree positions, and what its tokens see of each other. Texts that feed nothing write where nothing is read."""
        width = call.width
        numbers = np.zeros((call.texts, self._inputs(call)), np.int64)
        numbers[:, width + 1], numbers[:, width + 2] = self._cache.shape[3] - SPARE, 1
        if call.tree:
            numbers[:, width + 3 : 2 * width + 3] = np.arange(width)
            numbers[:, 2 * width + 3 :] = np.tri(width).flatten()
        for feed in feeds:
            row, length = numbers[feed.slot - call.first], len(feed.ids)
            row[:length] = feed.ids
            row[width : width + 3] = feed.start, feed.start, length
            if call.tree:
                row[width + 3 : 2 * width + 3] += feed.start
                if isinstance(feed, Feed) and feed.positions is not None and feed.mask is not None:
                    row[width + 3 : width + 3 + length] = feed.positions.numpy()
                    own = row[2 * width + 3 :].reshape(width, width)
                    own[:length, :length] = feed.mask[:, feed.start :].numpy()
        return sent(torch.from_numpy(numbers), self.device)

    def _inputs(self, call: _Call) -> int:
        return call.width + 3 + (call.width + call.width**2 if call.tree else 0)

    def _program(self, call: _Call, make: Callable[[_Call], _Program]) -> _Program:
        if not self.static or call.width > SPARE:
            return make(call)
        program = self._programs.pop(call, None) or make(call)
        self._programs[call] = program  # now the newest
        if len(self._programs) > HELD_PROGRAMS:
            del self._programs[next(iter(self._programs))]
        return program

    def _made(
        self, call: _Call, function: Callable[[Weights, Cache, torch.Tensor], Any], noise: Any = None
    ) -> _Program:
        numbers = torch.zeros(call.texts, self._inputs(call), dtype=torch.int64, device=self.device)
        weights, cache = self.weights if call.model is None else self.each[call.model], self._view(call)
        given = numbers.expand(self.weights.count, -1) if call.model is None else numbers
        captured = self.static and call.width <= SPARE
        return _Program(
            numbers, noise, Replayed(lambda: function(weights, cache, given), self._graphs, captured=captured)
        )

    def _forward_program(self, call: _Call, single: bool, capture: Sequence[int]) -> _Program:
        width = call.width

        def forward(
            weights: Weights, cache: Cache, given: torch.Tensor
        ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
            hidden: dict[int, torch.Tensor] = {}

            def keep(layer: int, x: torch.Tensor) -> None:
                if layer in capture:
                    hidden[layer] = x.view(len(given), width, -1)

            tree = _tree(given, width) if call.tree else None
            start, at = given[:, width : width + 1], given[:, width + 1 : width + 2]
            x = run(self._kernels, weights, cache, Fed(given[:, :width], start, at, tree, call.bare), keep)
            x = _last(x, given, width) if single else x
            return weights.head(x).view(len(given), 1 if single else width, -1), hidden

        return self._made(call, forward)

    def _draft_program(self, call: _Call, like: DraftOptions, steps: int) -> _Program:
        width, params, vocab_size = call.width, like.params, like.vocab_size
        noise = None
        if not params.greedy:
            noise = torch.zeros(call.texts, steps, dtype=torch.float64, device=self.device)

        def draft(weights: Weights, cache: Cache, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            start, at, length = given[:, width : width + 3].split(1, dim=1)
            x = _last(run(self._kernels, weights, cache, Fed(given[:, :width], start, at)), given, width)
            start, at = start + length, at + length
            tokens: list[torch.Tensor] = []  # in this form the tracer of torch.compile knows it
            chances: list[torch.Tensor] = []
            rows: list[torch.Tensor] = []
            for step in range(steps):
                logits = aligned(weights.head(x), vocab_size)
                if noise is None:
                    token = logits.argmax(dim=-1, keepdim=True)
                else:
                    logits = probabilities(logits, params)
                    token = drawn(logits, noise[:, step])[:, None]
                tokens.append(token)
                rows.append(logits)
                if like.log_confidence > -np.inf and noise is None:
                    scores = logits.float()
                    chances.append(scores.gather(-1, token) - scores.logsumexp(dim=-1, keepdim=True))
                if step + 1 < steps:
                    x = run(self._kernels, weights, cache, Fed(token, start + step, at + step))
            found = torch.cat(tokens, dim=1)
            if chances:
                sure = torch.cat(chances, dim=1).double().cumsum(dim=1)
                found[:, 1:].masked_fill_(sure[:, :-1] < like.log_confidence, -1)
            if noise is None and not like.with_q:
                return found, None
            q = torch.stack(rows, dim=1)
            return found, probabilities(q, params) if noise is None else q

        return self._made(call, draft, noise)

    def _view(self, call: _Call) -> Cache:
        layers, _, models, room, *_ = self._cache.shape
        slots = self._cache[:, call.first : call.first + call.texts]
        seen = slots[:, 0] if call.model is None else slots[:, :, call.model]
        keys, values = seen[:, :, : call.span].transpose(2, 3).split(self.weights.kv_heads, dim=2)
        rows = torch.arange(models if call.model is None else call.texts, device=self.device)[:, None]
        places = rows + call.first * models if call.model is None else (rows + call.first) * models + call.model
        all_keys, all_values = self._cache.view(layers, -1, *self._cache.shape[4:]).split(self.weights.kv_heads, dim=2)
        return Cache(
            all_keys.unbind(), all_values.unbind(), keys.unbind(), values.unbind(), places * room, *self._rotation
        )

    def _make_room(self, slots: int, positions: int) -> None:
        """Make room for so many texts of so many positions, or some more. Texts that have gone need none any more."""
        layers, had, models, room, *size = self._cache.shape
        if slots <= had and positions + SPARE <= room:
            return
        cached = {slot: most for slot, ends in self._written.copy().items() if (most := max(ends))}
        slots = max([slots, *(slot + 1 for slot in cached)])
        grown = room_for(max([positions, *cached.values()]), self.window)
        self._programs = {}
        cache = self._cache.new_zeros(layers, 1 << (slots - 1).bit_length(), models, grown, *size)
        for slot, most in cached.items():
            cache[:, slot, :, :most] = self._cache[:, slot, :, :most]
        self._cache = cache
        cos, sin = rotation_table(self._rotary, self.weights.embedding, cache.shape[3])
        self._rotation = cos[:, 0], sin[:, 0]

    @staticmethod
    def _copied(found: Answer) -> Answer:
        return Answer(found.logits.clone(), {layer: states.clone() for layer, states in found.hidden.items()})


def room_for(positions: int, window: int) -> int:
    """For how many positions room is made where so many are needed; some more, since all graphs are then recorded anew.

    Args:
        window: of the model.
    """
    grown = min(max(1 << (positions - 1).bit_length(), LEAST_ROOM), max(window, positions))
    return -(-grown // SPARE) * SPARE + SPARE  # kernels like even numbers


def _tree(given: torch.Tensor, width: int) -> Tree:
    positions, own = given[:, width + 3 :].split([width, width**2], dim=1)
    return Tree(positions, own.view(len(given), width, width).bool())


def _last(x: torch.Tensor, given: torch.Tensor, width: int) -> torch.Tensor:
    """The hidden states of the last token of each text, ``(texts, hidden)``; of one text under N models
    ``(N, 1, hidden)``."""
    rows = torch.arange(len(given), device=x.device)
    found = x.view(len(given), width, -1)[rows, given[:, width + 2] - 1]
    return found if x.ndim == 2 else found[:, None]
