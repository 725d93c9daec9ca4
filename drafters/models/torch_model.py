"""Plain decoders in PyTorch with the caches of the texts that they read: on a GPU a few CUDA graphs, else one forward.

On a GPU inputs are padded to a few widths, and attention spans the cache up to the next power of two, so that there
are few graphs. Of a forward the logits stay on the device; of a draft, which is one graph, token ids come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from drafters.hardware import to_device
from drafters.models.attention import rotation_table
from drafters.models.cuda_graph import Graphs, Replayed
from drafters.models.feeds import Answer, DraftFeed, Feed, Slots, tensor_of
from drafters.models.torch_layers import Cache, Fed, Tree, run
from drafters.models.torch_weights import Weights, weights_of
from drafters.models.triton_layers import kernels_for

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
"""To so many tokens inputs are padded on a GPU; longer ones (prompts) are run as they are."""

SPARE = WIDTHS[-1]
"""Positions that padding may write, behind those of each text."""

LEAST_ROOM, LEAST_SPAN = 512, 256

INFO = 4
"""Of each text fed, beside its ids: cached positions, where to write, how many tokens, where position 0 is."""

HELD_PROGRAMS = 256
"""So many graphs are kept, those used last."""


@dataclass(frozen=True)
class Call:
    """The shape of a forward or a draft, as far as it matters.

    Attributes:
        model: which one; ``None`` for all.
        first, texts: the slots; of all models, how many texts each of them has at most.
        width: tokens fed.
        span: positions that attention looks at.
        bare: as of :class:`~drafters.models.torch_layers.Fed`.
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


Place = tuple[int, int]
"""Among the rows of a call, and of position 0 of its text in the cache."""


@dataclass(frozen=True)
class Program:
    """A function of static inputs: ``numbers`` as :meth:`TorchModel.numbers` lays them out, and by text and step the
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
        static: whether inputs and spans are padded to a few sizes, as CUDA graphs need it; ``None``: on a GPU.
    """

    def __init__(self, models: Sequence[PreTrainedModel], *, static: bool | None):
        self.models, config = models, models[0].config
        self.window, self.vocab_size = int(config.max_position_embeddings), int(config.vocab_size)
        self.weights = weights_of(models)
        self.each = [weights_of([model]) for model in models] if len(models) > 1 else [self.weights]
        self.device = self.weights.embedding.device
        self.static = self.device.type == "cuda" if static is None else static
        self._graphs = Graphs(self.device)
        self._rotary = models[0].model.rotary_emb
        self.kernels = kernels_for(self.each[0], self._rotary)
        size = 2 * self.weights.kv_heads, self.weights.head_size
        self._cache = self.weights.embedding.new_empty(len(self.weights.layers), 0, len(models), 0, *size)
        """Keys, then values: ``(layers, slots, models, room, 2 kv heads, head size)``."""
        self._slots = Slots()
        self._written: dict[int, list[int]] = {}
        """How many positions are cached of each slot that is taken, by model."""
        self._programs: dict[Call, Program] = {}

    def take_slot(self) -> int:
        """A cache for one more text."""
        slot = self._slots.take()
        self._written[slot] = [0] * len(self.models)
        return slot

    def release_slot(self, slot: int) -> None:
        """Take a cache back; its memory is given back when room is made for others."""
        self._written.pop(slot, None)
        self._slots.give_back(slot)

    @torch.inference_mode()
    def keep(self, slot: int, start: int, kept: Sequence[int]) -> None:
        """As :meth:`~drafters.models.decoder.Decoder.keep`; of all models."""
        if kept[-1:] != [len(kept) - 1]:  # of a chain the first ones are kept, which are where they belong
            places = to_device(torch.tensor(kept) + start, self.device)
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
        asked = [(each, feed) for feed in feeds for each in (range(len(self.models)) if model is None else (model,))]
        call, places = self.call(asked, model, 0, (single, capture))
        program = self.program(call, lambda call: self._forward_program(call, single, capture))
        program.numbers.copy_(self.numbers(call, asked, places), non_blocking=True)
        logits, hidden = program.run()
        answers = []
        for feed in feeds:
            row, length = slice(None) if model is None else feed.slot - call.first, len(feed.ids)
            rows = logits[row] if single else logits[row][..., length - feed.last : length, :]
            answers.append(Answer(rows, {layer: hidden[layer][row][..., :length, :] for layer in feed.capture}))
        return answers

    def call(
        self, asked: Sequence[tuple[int, Feed | DraftFeed]], model: int | None, steps: int, kind: Hashable
    ) -> tuple[Call, list[Place]]:
        """The shape of a forward or draft, after making room for it, and where each text has its place.

        Args:
            asked: texts, each with the model that has it.
            model: the one that has them all; ``None`` where all run.
            steps: tokens that follow those fed.
        """
        feeds = [feed for _, feed in asked]
        longest, end = max(len(feed.ids) for feed in feeds), max(feed.start + len(feed.ids) for feed in feeds) + steps
        first, last = min(feed.slot for feed in feeds), max(feed.slot for feed in feeds)
        self._make_room(last + 1, end)
        for member, feed in asked:
            if self.static and not (feed.start or self.kernels.scattered):
                # What an earlier text left is hidden by weights of 0, which do not hide what is no number.
                self._cache[:, feed.slot, member] = 0
            self._written[feed.slot][member] = feed.start + len(feed.ids) + steps
        each = Counter(member for member, _ in asked)
        texts = last + 1 - first if model is not None else max(each.values())
        before, places = Counter[int](), []
        for member, feed in asked:
            row = feed.slot - first if model is not None else member * texts + before[member]
            before[member] += 1
            places.append((row, (feed.slot * len(self.models) + member) * self._cache.shape[3]))
        tree = any(isinstance(feed, Feed) and feed.mask is not None for feed in feeds)
        start, padded = feeds[0].start, self.static and longest <= SPARE
        width = next(width for width in WIDTHS if width >= longest) if padded else longest
        if padded:
            span = LEAST_SPAN
            while span < max(end, max(feed.start for feed in feeds) + width):
                span *= 2
            return Call(model, first, texts, width, min(span, self._cache.shape[3]), tree, False, kind), places
        alone = len({feed.slot for feed in feeds}) == 1 and not steps and not tree
        hides = (window := self.weights.sliding_window) is not None and window < end
        bare = alone and not hides and (start == 0 or width == 1)
        return Call(model, first, texts, width, end, tree, bare, kind), places

    def numbers(
        self, call: Call, asked: Sequence[tuple[int, Feed | DraftFeed]], places: Sequence[Place]
    ) -> torch.Tensor:
        """What the forward of a call reads, ``(rows, …)``: ids, cached positions, where to write, how many tokens and
        where position 0 is; of a tree positions, and what its tokens see of each other. Rows that feed nothing write
        where nothing is read."""
        width, room = call.width, self._cache.shape[3]
        numbers = np.zeros((self.rows(call), self._inputs(call)), np.int64)
        rows, models = np.arange(len(numbers)), len(self.models)
        bases = rows // call.texts if call.model is None else (call.first + rows) * models + call.model
        numbers[:, width + 1] = (bases + 1) * room - SPARE
        numbers[:, width + 2], numbers[:, width + 3] = 1, bases * room
        tree = width + INFO
        if call.tree:
            numbers[:, tree : tree + width] = np.arange(width)
            numbers[:, tree + width :] = np.tri(width).flatten()
        for (_, feed), (place, base) in zip(asked, places, strict=True):
            row, length = numbers[place], len(feed.ids)
            row[:length] = feed.ids
            row[width:tree] = feed.start, base + feed.start, length, base
            if call.tree:
                row[tree : tree + width] += feed.start
                if isinstance(feed, Feed) and feed.positions is not None and feed.mask is not None:
                    row[tree : tree + length] = feed.positions.numpy()
                    own = row[tree + width :].reshape(width, width)
                    own[:length, :length] = feed.mask[:, feed.start :].numpy()
        return to_device(torch.from_numpy(numbers), self.device)

    def rows(self, call: Call) -> int:
        """How many texts its forward has, those that feed nothing included."""
        return call.texts * (len(self.models) if call.model is None else 1)

    def _inputs(self, call: Call) -> int:
        return call.width + INFO + (call.width + call.width**2 if call.tree else 0)

    def program(self, call: Call, make: Callable[[Call], Program]) -> Program:
        """That of a call, made if it is new or if it is not kept."""
        if not self.static or call.width > SPARE:
            return make(call)
        program = self._programs.pop(call, None) or make(call)
        self._programs[call] = program  # now the newest
        if len(self._programs) > HELD_PROGRAMS:
            del self._programs[next(iter(self._programs))]
        return program

    def made(
        self,
        call: Call,
        function: Callable[[Callable[[Fed], torch.Tensor], torch.Tensor, Weights], Any],
        noise: Any = None,
    ) -> Program:
        """A program of a call.

        Args:
            function: of what runs the models, of the program's numbers, and of the weights.
        """
        numbers = torch.zeros(self.rows(call), self._inputs(call), dtype=torch.int64, device=self.device)
        weights, cache = self.weights if call.model is None else self.each[call.model], self._view(call)
        forward = partial(run, self.kernels, weights, cache)
        captured = self.static and call.width <= SPARE
        return Program(
            numbers, noise, Replayed(lambda: function(forward, numbers, weights), self._graphs, captured=captured)
        )

    def _forward_program(self, call: Call, single: bool, capture: Sequence[int]) -> Program:
        width = call.width

        def forward(
            run: Callable[..., torch.Tensor], given: torch.Tensor, weights: Weights
        ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
            hidden: dict[int, torch.Tensor] = {}

            def keep(layer: int, x: torch.Tensor) -> None:
                if layer in capture:
                    hidden[layer] = x.view(len(given), width, -1)

            x = run(fed_of(given, width, tree=call.tree, bare=call.bare), keep)
            x = last_of(x, given, width) if single else x
            return weights.head(x).view(len(given), 1 if single else width, -1), hidden

        return self.made(call, forward)

    def _view(self, call: Call) -> Cache:
        layers, *_ = self._cache.shape
        slots = self._cache[:, call.first : call.first + call.texts]
        seen = slots[:, 0] if call.model is None else slots[:, :, call.model]
        keys, values = seen[:, :, : call.span].transpose(2, 3).split(self.weights.kv_heads, dim=2)
        all_keys, all_values = self._cache.view(layers, -1, *self._cache.shape[4:]).split(self.weights.kv_heads, dim=2)
        return Cache(all_keys.unbind(), all_values.unbind(), keys.unbind(), values.unbind(), *self._rotation)

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
        hidden = {layer: tensor_of(states).clone() for layer, states in found.hidden.items()}
        return Answer(found.logits.clone(), hidden)


def room_for(positions: int, window: int) -> int:
    """For how many positions room is made where so many are needed; some more, since all graphs are then recorded anew.

    Args:
        window: of the model.
    """
    grown = min(max(1 << (positions - 1).bit_length(), LEAST_ROOM), max(window, positions))
    return -(-grown // SPARE) * SPARE + SPARE  # kernels like even numbers


def fed_of(given: torch.Tensor, width: int, *, tree: bool = False, bare: bool = False) -> Fed:
    """What the numbers of a call, ``(rows, …)``, say of the tokens."""
    start, places, _, bases = given[:, width : width + INFO].split(1, dim=1)
    if not tree:
        return Fed(given[:, :width], start, places, bases, None, bare)
    positions, own = given[:, width + INFO :].split([width, width**2], dim=1)
    own = own.view(len(given), width, width).bool()
    return Fed(given[:, :width], start, places, bases, Tree(positions, own), bare)


def last_of(x: torch.Tensor, given: torch.Tensor, width: int) -> torch.Tensor:
    """The hidden states of the last token of each text: ``(rows, hidden)``, of N models ``(N, rows / N, hidden)``."""
    rows = torch.arange(len(given), device=x.device)
    found = x.view(len(given), width, -1)[rows, given[:, width + 2] - 1]
    return found if x.ndim == 2 else found.view(len(x), -1, x.shape[-1])
