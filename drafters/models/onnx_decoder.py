"""Plain decoders on ONNX Runtime: the forward of a CPU, for a few tokens on top of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnxruntime
import torch
from transformers import PreTrainedModel

from drafters.models.decoder_graph import DecoderGraph, head_size_of, sliding_window_of
from drafters.models.decoder_graph import unsupported as no_graph

CHUNK = 512
"""Longer inputs are fed in pieces of so many tokens, which bounds the memory of scores and biases."""

ROOM = 256
"""A cache has room for a multiple of so many positions, and grows with the context."""

HELD_TOKENS, HELD_FEEDS = 64, 24
"""Buffers are held for the next time for inputs of up to so many tokens; so many of them, those used last."""


@cache
def shared_threads() -> int:
    """Give all sessions one pool of threads: the idle threads of one session would slow the others.

    Returns how many: as many as torch has when the first decoder is made.
    """
    onnxruntime.set_global_thread_pool_sizes(torch.get_num_threads(), 1)
    return torch.get_num_threads()


def unsupported(model: PreTrainedModel, dtype: torch.dtype, device: str) -> str | None:
    """Why :class:`OnnxDecoder` cannot run ``model`` in ``dtype`` on ``device``; ``None`` if it can."""
    if dtype != torch.float32 or not device.startswith("cpu"):
        return f"{dtype} on {device}: ONNX Runtime is for float32 on the CPU"
    return no_graph(model)


@dataclass(frozen=True)
class _Feed:
    """Inputs and outputs of forwards of one number of tokens, bound once and used in place."""

    binding: onnxruntime.IOBinding
    ids: np.ndarray
    positions: np.ndarray
    past: np.ndarray
    first: np.ndarray
    biases: dict[str, np.ndarray]
    logits: np.ndarray
    hidden: dict[int, np.ndarray]


class OnnxDecoder:
    """One model with a key-value cache, on the CPU in float32; see :class:`~drafters.models.decoder.Decoder`.

    The cache is a buffer that is written in place, so rolling back is forgetting a number.

    Args:
        model: one that :func:`unsupported` has nothing against. Its parameters are shared, not copied; ONNX Runtime
            keeps a packed copy of its matrices beside them,
            made at the first forward: later changes of the parameters have no effect.
    """

    device = torch.device("cpu")

    def __init__(self, model: PreTrainedModel):
        shared_threads()
        self.model, self.config = model, model.config
        self.window = int(self.config.max_position_embeddings)
        self.vocab_size = int(self.config.vocab_size)
        self.parameter_count = model.num_parameters()
        self.captured: dict[int, torch.Tensor] = {}
        self._session: onnxruntime.InferenceSession | None = None
        self._sliding = sliding_window_of(self.config)
        kv_heads, size = int(self.config.num_key_value_heads), head_size_of(self.config)
        self._cache = torch.zeros(2 * self.config.num_hidden_layers, kv_heads, 0, size)
        """Keys and values by turns, ``(2 layers, kv heads, room, head size)``."""
        self._room = 0

    def forward(
        self,
        ids: Sequence[int],
        start: int,
        *,
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        last: int | None = None,
        capture: Sequence[int] = (),
        into: np.ndarray | None = None,
    ) -> torch.Tensor:
        """As of :class:`~drafters.models.decoder.Decoder`; ``into`` is where to write the logits."""
        length = len(ids)
        if start + length > self.window:
            raise ValueError(f"{start + length} tokens exceed the context window of {self.window}")
        session = self._session
        if session is None or not set(capture) <= set(self._graph.capture):
            session = self._load(capture)
        if start + length > self._room:
            self._make_room(start + length)
        skipped = 0 if last is None else max(length - last, 0)
        logits = np.empty((length - skipped, self.vocab_size), np.float32) if into is None else into
        hidden = {layer: np.empty((length, self.config.hidden_size), np.float32) for layer in capture}
        piece = CHUNK if mask is None else length  # only what is causal can be cut
        for begin in range(0, length, piece):
            end = min(begin + piece, length)
            first = min(max(begin, skipped), end - 1)  # no forward is without logits
            feed = self._feed(end - begin, end - first, masked=mask is not None)
            feed.ids[0], feed.past[0], feed.first[0] = ids[begin:end], start + end - 1, first - begin
            np.minimum(feed.ids, self.vocab_size - 1, out=feed.ids)  # tokens of the target that a drafter lacks
            feed.positions[0] = np.arange(start + begin, start + end) if positions is None else positions
            self._hide(feed, mask)
            session.run_with_iobinding(feed.binding)
            if first >= skipped:
                logits[first - skipped : end - skipped] = feed.logits
            for layer, states in hidden.items():
                states[begin:end] = feed.hidden[layer]
        self.captured = {layer: torch.from_numpy(states) for layer, states in hidden.items()}
        return torch.from_numpy(logits)

    @torch.inference_mode()
    def keep(self, start: int, kept: Sequence[int]) -> None:
        """As of :class:`~drafters.models.decoder.Decoder`."""
        if list(kept) != list(range(len(kept))):
            self._cache[:, :, start : start + len(kept)] = self._cache[:, :, torch.tensor(kept) + start]

    @torch.inference_mode(False)
    def _load(self, capture: Sequence[int]) -> onnxruntime.InferenceSession:
        graph = DecoderGraph(self.model, capture)
        options = onnxruntime.SessionOptions()
        options.use_per_session_threads = False
        options.log_severity_level = 3
        weights = [onnxruntime.OrtValue.ortvalue_from_numpy(w.detach().numpy()) for w in graph.weights.values()]
        options.add_external_initializers(list(graph.weights), weights)
        proto = graph.proto.SerializeToString()
        session = onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
        # The session reads the weights where they are, so the graph, which holds them, has to live as long.
        self._graph, self._session = graph, session
        self._feeds: dict[tuple[int, int, bool], _Feed] = {}
        return session

    @torch.inference_mode()
    def _make_room(self, needed: int) -> None:
        """Make room in the cache for so many positions, or some more."""
        grown = min(-(-needed // ROOM) * ROOM, self.window)
        cache = self._cache.new_zeros(*self._cache.shape[:2], grown, self._cache.shape[3])
        cache[:, :, : self._room] = self._cache
        self._cache, self._room, self._feeds = cache, grown, {}
        rotary = self.model.model.rotary_emb(cache[0], torch.arange(grown)[None])
        self._rotation = [part[0, :, : cache.shape[3] // 2].contiguous().numpy() for part in rotary]

    def _feed(self, length: int, rows: int, *, masked: bool) -> _Feed:
        """Inputs and outputs for ``length`` tokens and the logits of the last ``rows``; trees have their own biases."""
        key = length, rows, masked
        if found := self._feeds.pop(key, None):
            self._feeds[key] = found  # now the newest
            return found
        assert self._session is not None
        room, hidden_size = self._room, int(self.config.hidden_size)
        feed = _Feed(
            binding=self._session.io_binding(),
            ids=np.zeros((1, length), np.int64),
            positions=np.zeros((1, length), np.int64),
            past=np.zeros(1, np.int32),
            first=np.zeros(1, np.int64),
            biases={name: np.zeros((1, 1, length, room), np.float32) for name in self._graph.biases},
            logits=np.empty((1, rows, self.vocab_size), np.float32),
            hidden={layer: np.empty((1, length, hidden_size), np.float32) for layer in self._graph.capture},
        )
        caches = {f"{('key', 'value')[i % 2]}_{i // 2}": cache[None].numpy() for i, cache in enumerate(self._cache)}
        inputs = {name: getattr(feed, name) for name in ("ids", "positions", "past", "first")}
        inputs |= {"fed": np.array([length], np.int32), "total": np.array(room, np.int32)}
        inputs |= dict(zip(("cos", "sin"), self._rotation, strict=True))
        for name, array in (inputs | feed.biases | caches).items():
            feed.binding.bind_cpu_input(name, array)
        outputs = {"logits": feed.logits} | {f"new_{name}": cache for name, cache in caches.items()}
        outputs |= {f"hidden_{layer}": states for layer, states in feed.hidden.items()}
        for name, array in outputs.items():
            feed.binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        if length <= HELD_TOKENS:
            self._feeds[key] = feed
        if len(self._feeds) > HELD_FEEDS:
            del self._feeds[next(iter(self._feeds))]
        return feed

    def _hide(self, feed: _Feed, mask: torch.Tensor | None) -> None:
        """Write what tokens do not see into the biases; the operation itself hides what comes later."""
        total, positions = int(feed.past[0]) + 1, feed.positions[0]
        if mask is not None and "bias" in feed.biases:
            feed.biases["bias"][0, 0, :, :total] = np.where(mask, np.float32(0), -np.inf)
        if self._sliding is not None:
            places = np.concatenate([np.arange(total - len(positions)), positions])
            seen = places > positions[:, None] - self._sliding
            seen = seen if mask is None else seen & mask.numpy()
            feed.biases["sliding"][0, 0, :, :total] = np.where(seen, np.float32(0), -np.inf)


class OnnxGroup:
    """Models of one vocabulary, run one after the other: products batched over models are no faster on a CPU."""

    def __init__(self, decoders: Sequence[OnnxDecoder]):
        self.decoders = decoders
        self.window, self.vocab_size = decoders[0].window, decoders[0].vocab_size

    def forward(self, ids: Sequence[int], start: int, *, last: int) -> torch.Tensor:
        """Logits ``(models, last, V)`` of the last tokens, each model with its own cache."""
        logits = np.empty((len(self.decoders), min(last, len(ids)), self.vocab_size), np.float32)
        for decoder, rows in zip(self.decoders, logits, strict=True):
            decoder.forward(ids, start, last=last, into=rows)
        return torch.from_numpy(logits)
