"""A plain decoder's session on ONNX Runtime, with the caches of the texts that it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime
import torch
from transformers import PreTrainedModel

from drafters.checkpoints.model_sizes import head_size_of
from drafters.draft import Draft
from drafters.models.decoder import Likeliest, aligned
from drafters.models.decoder_graph import DecoderGraph
from drafters.models.families import sliding_window_of
from drafters.models.feeds import Answer, DraftFeed, Feed, Slots
from drafters.models.graph import rotation
from drafters.models.onnx_session import HELD_TOKENS, Array, Held, bind, run_options, session_of, shared_threads
from drafters.models.pages import Pages
from drafters.models.token_map import ConfinedHead, spread
from drafters.sampling import probabilities

ROOM, SLOTS = 512, 16
"""Caches have room for a multiple of so many positions, and grow with the context; as soon as there is more than one
text there are so many. Only what is written of them takes up memory."""

Step = Callable[[Sequence[int], Sequence[int]], tuple[Likeliest, torch.Tensor]]
"""Feeds a token of each of several texts, given with how many positions are cached before it; returns the most probable
tokens and logits ``(texts, tokens)``, valid until the next forward."""

Layout = Sequence[tuple[int, int, int]]
"""Of each text that feeds something its place, how many tokens, and of how many of the last something is wanted."""


@dataclass
class _Buffers:
    """Inputs and outputs of forwards of one shape, bound once and used in place; and how they are laid out."""

    binding: onnxruntime.IOBinding
    inputs: dict[str, np.ndarray]
    ids: np.ndarray
    positions: np.ndarray
    past: np.ndarray
    logits: torch.Tensor
    likeliest: Likeliest
    hidden: dict[int, np.ndarray]
    layout: Layout = ()


class OnnxModel:
    """One model on the CPU in float32, and key-value caches in slots.

    The caches are one buffer that is written in place, so rolling back is forgetting a number.

    Args:
        model: one that :func:`~drafters.models.onnx_decoder.unsupported` has nothing against. Its parameters are
            shared, not copied; ONNX Runtime keeps a packed copy of its matrices beside them, made at the first
            forward: later changes of the parameters have no effect.
        int8, verifies: as of :class:`~drafters.models.decoder_graph.DecoderGraph`.
    """

    def __init__(self, model: PreTrainedModel, int8: bool, *, verifies: bool):
        shared_threads()
        self.model, self.config, self.int8, self.verifies = model, model.config, int8, verifies
        self.vocab_size, self.parameter_count = int(self.config.vocab_size), model.num_parameters()
        self.window = int(self.config.max_position_embeddings)
        self._sliding = sliding_window_of(self.config)
        self.tokens = model.lm_head.tokens if isinstance(model.lm_head, ConfinedHead) else None
        self._session: onnxruntime.InferenceSession | None = None
        self._captured = set[int]()
        self._buffers = Held[_Buffers]()
        self._bound: dict[tuple[int, int], onnxruntime.IOBinding] = {}
        """For forwards of more tokens than buffers are held for, by first slot and texts: their caches are bound."""
        kv_heads, size = int(self.config.num_key_value_heads), head_size_of(self.config)
        self._pages = Pages((2 * self.config.num_hidden_layers, 0, kv_heads, 0, size))
        """Keys and values by turns, ``(2 layers, slots, kv heads, room, head size)``."""
        self._slots = Slots()
        self._rotation: dict[str, np.ndarray] = {}
        self._written: dict[int, int] = {}
        """How many positions have been written of each slot that is taken."""

    def take_slot(self) -> int:
        """A cache for one more text."""
        slot = self._slots.take()
        self._written[slot] = 0
        return slot

    def release_slot(self, slot: int) -> None:
        """Take a cache back, and give its memory back."""
        self._written.pop(slot, None)
        if slot < self._pages.shape[1]:
            for layer in self._cache[:, slot]:
                self._pages.forget(layer)
        self._slots.give_back(slot)

    @property
    def room(self) -> int:
        """Positions that each cache has room for."""
        return self._pages.shape[3]

    @property
    def _cache(self) -> torch.Tensor:
        return self._pages.array

    def run(self, feeds: Sequence[Feed]) -> list[Answer]:
        """One forward of several texts, each in a slot of its own."""
        session = self._session
        if session is None or any(feed.capture and not set(feed.capture) <= self._captured for feed in feeds):
            session = self._load({layer for feed in feeds for layer in feed.capture})
        # Texts that feed less than others are padded, and padding has to fit in as well.
        slots, positions, longest = 0, 0, 0
        for slot, ids, start, *_ in feeds:
            slots, positions, longest = max(slots, slot + 1), max(positions, start), max(longest, len(ids))
            self._written[slot] = max(self._written.get(slot, 0), start + len(ids))
        if slots > self._pages.shape[1] or positions + longest > self._pages.shape[3]:
            self.make_room(slots, positions + longest)
        buffers = self._fill_one(feeds[0]) if len(feeds) == 1 else self._fill(feeds)
        session.run_with_iobinding(buffers.binding, run_options(longest))
        if len(feeds) == 1:
            return [Answer(buffers.logits, buffers.hidden, buffers.likeliest)]
        answers, token, row = [], 0, 0
        for feed in feeds:
            own = slice(token, token := token + len(feed.ids))
            hidden = {layer: states[own] for layer, states in buffers.hidden.items()}
            rows = slice(row, row := row + feed.last)
            tokens, chances = buffers.likeliest
            answers.append(Answer(buffers.logits[rows], hidden, (tokens[rows], chances[rows])))
        return answers

    def whole(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits of a token map's tokens as those of the whole vocabulary."""
        return logits if self.tokens is None else spread(logits, self.tokens, self.vocab_size)

    def draft(self, feed: DraftFeed) -> Draft:
        """A greedy draft of one text; see :meth:`~drafters.models.decoder.Decoder.draft`.

        Weights push what Python needs out of the processor's caches, so that a line of it may take as long as an
        operation of the model: between forwards there are as few as can be.
        """
        slot, ids, start, options = feed
        first = self.run([Feed(slot, ids, start, 1)])[0]
        end, length, doubts = start + len(ids), options.length, options.log_confidence > -math.inf
        if end + length > self._pages.shape[3]:
            self.make_room(slot + 1, end + length)
        buffers = self._held(slot, 1, 1, 1, 1, False)
        assert self._session is not None and first.likeliest is not None
        run, binding, inputs = self._session.run_with_iobinding, buffers.binding, buffers.inputs
        scores, (best, chances) = first.logits, first.likeliest
        tokens, rows, sure = list[int](), list[torch.Tensor](), 0.0
        while True:
            token = int(best[0])
            tokens.append(token)
            if options.with_q:
                rows.append(scores.clone())
            if doubts:
                sure += float(chances[0])
            if len(tokens) == length or sure < options.log_confidence:
                break
            buffers.ids[0], buffers.past[0], buffers.positions[0, 0] = token, end, end
            if self._sliding is not None:
                self._hide(Feed(slot, [token], end, 1), inputs, 0, buffers.positions[0])
            run(binding)
            scores, (best, chances), end = buffers.logits, buffers.likeliest, end + 1
        self._written[slot] = max(self._written.get(slot, 0), end)
        q = aligned(self.whole(torch.cat(rows)), options.vocab_size) if rows else None
        return Draft.chain(tokens, None if q is None else probabilities(q, options.params))

    def steps(self, slots: Sequence[int], until: int) -> Step:
        """What feeds these texts a token each, of positions below ``until``, for which there has to be room; nothing
        else may be run between its calls."""
        first, count, session = min(slots), len(slots), self._session
        buffers, places = self._held(first, max(slots) + 1 - first, 1, count, count, False), np.array(slots) - first
        self._lay_out(buffers, [(int(place), 1, 1) for place in places])
        for slot in slots:
            self._written[slot] = max(self._written.get(slot, 0), until)

        def step(ids: Sequence[int], ends: Sequence[int]) -> tuple[Likeliest, torch.Tensor]:
            assert session is not None
            buffers.ids[:], buffers.past[places], buffers.positions[places, 0] = ids, ends, ends
            if self._sliding is not None:
                for slot, id, end in zip(slots, ids, ends, strict=True):
                    self._hide(Feed(slot, [id], end, 1), buffers.inputs, slot - first, np.array([end]))
            session.run_with_iobinding(buffers.binding)
            return buffers.likeliest, buffers.logits

        return step

    def keep(self, slot: int, start: int, kept: Sequence[int]) -> None:
        if kept[-1:] != [len(kept) - 1]:  # of a chain the first ones are kept, which are where they belong
            with torch.inference_mode():
                self._cache[:, slot, :, start : start + len(kept)] = self._cache[:, slot, :, torch.tensor(kept) + start]

    def _load(self, capture: set[int]) -> onnxruntime.InferenceSession:
        graph = DecoderGraph(self.model, sorted(capture | self._captured), self.int8, verifies=self.verifies)
        session = session_of(graph)
        self._graph, self._session, self._captured = graph, session, set(graph.capture)
        self._buffers, self._bound = Held(), {}
        return session

    @torch.inference_mode()
    def make_room(self, slots: int, positions: int) -> None:
        """Make room for so many texts of so many positions, or some more."""
        _, had, _, room, _ = self._pages.shape
        if slots <= had and positions <= room:
            return
        slots = had if slots <= had else max(slots, SLOTS if had else 1)
        grown = max(room, -(-positions // ROOM) * ROOM)
        kv_heads, size = self._pages.shape[2::2]
        pages = Pages((len(self._cache), slots, kv_heads, grown, size))
        rotary = self.model.model.rotary_emb(pages.array[0], torch.arange(grown)[None])
        written = [(slot, min(end, room)) for slot, end in self._written.copy().items() if slot < had]
        for layer, before in zip(pages.array, self._cache, strict=True):
            for slot, end in written:  # what was never written shall take up no memory here either
                layer[slot, :, :end] = before[slot, :, :end]
            self._pages.forget(before)  # or for a moment there would be twice as much
        self._rotation = rotation(*(part[0, :, : size // 2] for part in rotary))
        self._pages, self._buffers, self._bound = pages, Held(), {}

    def _fill_one(self, feed: Feed) -> _Buffers:
        """The inputs and outputs of a forward of one text, the inputs filled in."""
        length, masked = len(feed.ids), feed.mask is not None
        buffers = self._held(feed.slot, 1, length, length, feed.last, masked)
        self._write(feed, buffers, 0, 0, masked)
        return buffers

    def _fill(self, feeds: Sequence[Feed]) -> _Buffers:
        """The same of several."""
        lengths = [len(feed.ids) for feed in feeds]
        first = min(feed.slot for feed in feeds)
        texts = max(feed.slot for feed in feeds) + 1 - first
        masked = any(feed.mask is not None for feed in feeds)
        buffers = self._held(first, texts, max(lengths), sum(lengths), sum(feed.last for feed in feeds), masked)
        self._lay_out(buffers, [(feed.slot - first, len(feed.ids), feed.last) for feed in feeds])
        token = 0
        for feed in feeds:
            self._write(feed, buffers, feed.slot - first, token, masked)
            token += len(feed.ids)
        return buffers

    @staticmethod
    def _lay_out(buffers: _Buffers, layout: Layout) -> None:
        """Write which tokens are whose, unless they were those texts' the last time too."""
        if layout == buffers.layout:
            return
        inputs, buffers.layout, token, row = buffers.inputs, layout, 0, 0
        inputs["fed"][:], inputs["past"][:] = 0, 0
        for place, length, wanted in layout:
            end, rows = token + length, slice(row, row + wanted)
            inputs["fed"][place] = length
            inputs["pad"][place, :length] = np.arange(token, end)
            inputs["unpad"][token:end, 0], inputs["unpad"][token:end, 1] = place, np.arange(length)
            inputs["rows"][rows] = np.arange(end - wanted, end)
            inputs["ends"][rows] = inputs["unpad"][end - wanted : end]
            token, row = end, row + wanted

    def _write(self, feed: Feed, buffers: _Buffers, text: int, token: int, masked: bool) -> None:
        """Write the input of one text, whose tokens begin with number ``token``."""
        length, end, last_id = len(feed.ids), feed.start + len(feed.ids), self.vocab_size - 1
        lacking = max(feed.ids) > last_id  # tokens of the target that a drafter does not have
        buffers.ids[token : token + length] = np.minimum(feed.ids, last_id) if lacking else feed.ids
        buffers.past[text] = end - 1
        places = buffers.positions[text, :length]
        places[:] = range(feed.start, end) if feed.positions is None else feed.positions
        if masked or self._sliding is not None:
            self._hide(feed, buffers.inputs, text, places)

    def _hide(self, feed: Feed, inputs: dict[str, np.ndarray], text: int, positions: np.ndarray) -> None:
        """Write what a text's tokens do not see into the biases; the operation itself hides what comes later."""
        length, total = len(feed.ids), feed.start + len(feed.ids)
        mask = np.ones((length, total), bool) if feed.mask is None else feed.mask.numpy()
        if "bias" in inputs:
            inputs["bias"][text % len(inputs["bias"]), 0, :length, :total] = np.where(mask, np.float32(0), -np.inf)
        if self._sliding is not None:
            places = np.concatenate([np.arange(feed.start), positions])
            seen = mask & (places > positions[:, None] - self._sliding)
            inputs["sliding"][text, 0, :length, :total] = np.where(seen, np.float32(0), -np.inf)

    def _held(self, first: int, texts: int, longest: int, tokens: int, rows: int, masked: bool) -> _Buffers:
        """Buffers for ``tokens`` tokens of the texts from slot ``first`` on, and the logits of ``rows`` of them; trees
        have their own biases. What is the same each time a single text is fed is filled in."""
        key = first, texts, longest, tokens, rows, masked
        if found := self._buffers.get(key):
            return found
        assert self._session is not None
        room = self._pages.shape[3]
        inputs: dict[str, np.ndarray] = {
            "ids": np.zeros(tokens, np.int64),
            "pad": np.zeros((texts, longest), np.int64),
            "unpad": np.zeros((tokens, 2), np.int64),
            "positions": np.zeros((texts, longest), np.int64),
            "past": np.zeros(texts, np.int32),
            "fed": np.full(texts, tokens, np.int32),
            "rows": np.arange(tokens - rows, tokens),
            "ends": np.zeros((rows, 2), np.int64),
            "total": np.array(room, np.int32),
            **self._rotation,
        }
        if texts == 1:
            inputs["pad"][0] = inputs["unpad"][:, 1] = np.arange(tokens)
            inputs["ends"][:, 1] = inputs["rows"]
        for name in self._graph.biases:
            alike = name == "bias" and not masked
            inputs[name] = np.zeros((1 if alike else texts, 1, longest, room), np.float32)
        logits, size = torch.empty(rows, self._graph.outputs), int(self.config.hidden_size)
        likeliest: Likeliest = np.empty(rows, np.int64), np.empty(rows, np.float32)
        hidden = {layer: np.empty((tokens, size), np.float32) for layer in self._graph.capture}
        outputs: dict[str, Array] = {"logits": logits, **dict(zip(("tokens", "chances"), likeliest, strict=True))}
        outputs |= {f"hidden_{layer}": states for layer, states in hidden.items()}
        held = tokens <= HELD_TOKENS
        if held or (binding := self._bound.get((first, texts))) is None:
            slots = enumerate(self._cache[:, first : first + texts])
            caches = {f"{('key', 'value')[i % 2]}_{i // 2}": cache for i, cache in slots}
            binding = self._session.io_binding()
            bind(binding, caches, {f"new_{name}": cache for name, cache in caches.items()})
            if not held:  # they are most of what is bound
                self._bound[first, texts] = binding
        bind(binding, inputs, outputs)
        ids, positions, past = (inputs[name] for name in ("ids", "positions", "past"))
        buffers = _Buffers(binding, inputs, ids, positions, past, logits, likeliest, hidden)
        if held:
            self._buffers.put(key, buffers)
        return buffers
