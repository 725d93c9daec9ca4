"""Kernels of a decoder layer for GPUs, in Triton: norms, rotation, attention to a cache, and the gate.

What they load and store has the dtype of the tensors; they compute in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_norm(x, delta, weight, total, normed, size, rows_each, eps, ADDS: tl.constexpr, BLOCK: tl.constexpr):
    """``total = x + delta`` where ``ADDS``, and its RMS norm, of rows of ``size`` numbers: one program a row.

    ``rows_each`` rows in turn share a row of ``weight``.
    """
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < size
    values = tl.load(x + row * size + at, mask=inside, other=0.0)
    if ADDS:
        more = tl.load(delta + row * size + at, mask=inside, other=0.0)
        values = (values.to(tl.float32) + more.to(tl.float32)).to(values.dtype)
        tl.store(total + row * size + at, values, mask=inside)
    wide = values.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / size + eps)
    weights = tl.load(weight + (row // rows_each) * size + at, mask=inside, other=0.0)
    tl.store(normed + row * size + at, (wide * scale * weights.to(tl.float32)).to(values.dtype), mask=inside)


@triton.jit
def gate(gate_up, gated, size, BLOCK: tl.constexpr):
    """``silu(gate) * up`` of rows that have both side by side, ``size`` numbers each."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    first = tl.load(gate_up + row * 2 * size + at, mask=inside, other=0.0)
    second = tl.load(gate_up + row * 2 * size + size + at, mask=inside, other=0.0).to(tl.float32)
    wide = first.to(tl.float32)
    silu = (wide / (1.0 + tl.exp(-wide))).to(first.dtype).to(tl.float32)
    tl.store(gated + row * size + at, (silu * second).to(first.dtype), mask=inside)


@triton.jit
def rotate(
    qkv,
    query,
    keys,
    values,
    cos,
    sin,
    norms,
    positions,
    places,
    length,
    place_size,
    texts_each,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    NORMED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rotated queries into ``query``, rotated keys and values into the cache: one program a token and head.

    Args:
        qkv: ``(N * T, (heads + 2 kv heads) * SIZE)``; ``query``: ``(N * T, heads, SIZE)``.
        keys, values: where the cache's first place is; from one place to the next it is ``place_size``.
        cos, sin: ``(positions, SIZE)``, the sines with their signs; ``positions``: ``(N * T,)``.
        norms: of queries and keys where ``NORMED``, ``(models, heads + kv heads, SIZE)``; ``texts_each`` texts in turn
            share a model.
        places: where the first token of each text is written, ``(N,)``; ``length``: T.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    text = row // length
    at = tl.arange(0, BLOCK)
    inside = at < SIZE
    source = qkv + (row * (HEADS + 2 * KV_HEADS) + head) * SIZE
    x = tl.load(source + at, mask=inside, other=0.0)
    place = tl.load(places + text) + row % length
    if head >= HEADS + KV_HEADS:
        tl.store(values + place * place_size + (head - HEADS - KV_HEADS) * SIZE + at, x, mask=inside)
    else:
        other = tl.where(at < SIZE // 2, at + SIZE // 2, at - SIZE // 2)
        wide = x.to(tl.float32)
        turned = tl.load(source + other, mask=inside, other=0.0).to(tl.float32)
        if NORMED:
            scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / SIZE + eps)
            norm = norms + (text // texts_each * (HEADS + KV_HEADS) + head) * SIZE
            wide = wide * scale * tl.load(norm + at, mask=inside, other=0.0).to(tl.float32)
            turned = turned * scale * tl.load(norm + other, mask=inside, other=0.0).to(tl.float32)
        table = tl.load(positions + row) * SIZE + at
        wide = wide * tl.load(cos + table, mask=inside, other=0.0).to(tl.float32)
        wide += turned * tl.load(sin + table, mask=inside, other=0.0).to(tl.float32)
        if head < HEADS:
            tl.store(query + (row * HEADS + head) * SIZE + at, wide.to(x.dtype), mask=inside)
        else:
            tl.store(keys + place * place_size + (head - HEADS) * SIZE + at, wide.to(x.dtype), mask=inside)


@triton.jit
def attend(
    query,
    keys,
    values,
    attended,
    sums,
    bases,
    start,
    positions,
    own,
    scale,
    length,
    place_size,
    reach,
    window,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    TREE: tl.constexpr,
    SLIDES: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Attention of a few tokens to what is cached and to each other.

    A program has ``ROWS`` queries that share a head of keys, and the ``reach`` positions of one of ``PARTS`` parts.
    What the programs find is put together by :func:`join`; where there is one part, it is the result.

    Args:
        query: ``(N * T, heads, SIZE)``; keys, values, place_size as of :func:`rotate`.
        attended: by part, ``(N * T * heads, PARTS, SIZE)``; ``sums``: the logarithms of their sums of weights.
        bases: where position 0 of each text is, ``(N,)``; ``start``: how many positions are cached of each, ``(N,)``.
        positions: ``(N * T,)``; own: of a tree which of its tokens each sees, ``(N, T, T)``; else not read.
        window: positions that are seen, where it slides.

    Source: Dao et al. 2023, "Flash-Decoding for long-context inference".
    """
    part, text = tl.program_id(0), tl.program_id(2).to(tl.int64)
    kv_head = tl.program_id(1) % KV_HEADS
    tile = tl.program_id(1) // KV_HEADS
    group: tl.constexpr = HEADS // KV_HEADS
    rows = tile * ROWS + tl.arange(0, ROWS)
    asked = rows < group * length
    token = tl.minimum(rows // group, length - 1)
    line = (text * length + token) * HEADS + kv_head * group + rows % group
    at = tl.arange(0, BLOCK)
    inside = at < SIZE
    q = tl.load(query + line[:, None] * SIZE + at[None, :], mask=asked[:, None] & inside[None, :], other=0.0)
    first = tl.load(start + text)
    base = tl.load(bases + text)
    low = (part * reach).to(tl.int64)
    last = first + length if TREE else first + tl.minimum(length, (tile * ROWS + ROWS - 1) // group + 1)
    high = tl.minimum(low + reach, last)
    if SLIDES and not TREE:  # what is before the first token's window is seen by none
        low = tl.maximum(low, (first + tile * ROWS // group - window + 1) // STEP * STEP)
    place = tl.load(positions + text * length + token)
    most = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    found = tl.zeros([ROWS, BLOCK], tl.float32)
    for begin in range(low, high, STEP):
        slots = begin + tl.arange(0, STEP)
        here = slots < high
        cached = (base + slots) * place_size + kv_head * SIZE
        shown = here[None, :] & inside[:, None]
        k = tl.load(keys + cached[None, :] + at[:, None], mask=shown, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        where = slots
        if TREE:
            fed = slots - first
            among = here & (fed >= 0)
            index = tl.where(among, fed, 0)
            sees = tl.load(own + (text * length + token[:, None]) * length + index[None, :]) != 0
            seen = here[None, :] & (sees | (fed < 0)[None, :])
            where = tl.where(among, tl.load(positions + text * length + index), slots)
        else:
            seen = here[None, :] & (slots[None, :] <= first + token[:, None])
        if SLIDES:
            seen = seen & (where[None, :] > place[:, None] - window)
        scores = tl.where(seen, scores, -float("inf"))
        highest = tl.maximum(most, tl.max(scores, axis=1))
        finite = tl.where(highest == -float("inf"), 0.0, highest)
        weights = tl.exp(scores - finite[:, None])
        fade = tl.exp(most - finite)
        v = tl.load(values + cached[:, None] + at[None, :], mask=here[:, None] & inside[None, :], other=0.0)
        found = found * fade[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        total = total * fade + tl.sum(weights, axis=1)
        most = highest
    found = found / tl.where(total == 0.0, 1.0, total)[:, None]
    out = attended + (line[:, None] * PARTS + part) * SIZE + at[None, :]
    tl.store(out, found.to(attended.dtype.element_ty), mask=asked[:, None] & inside[None, :])
    if PARTS > 1:
        known = tl.where(total == 0.0, -float("inf"), most + tl.log(tl.where(total == 0.0, 1.0, total)))
        tl.store(sums + line * PARTS + part, known, mask=asked)


@triton.jit
def join(attended, sums, joined, SIZE: tl.constexpr, PARTS: tl.constexpr, MOST: tl.constexpr, BLOCK: tl.constexpr):
    """The parts of :func:`attend` put together: one program a query. ``joined``: ``(N * T * heads, SIZE)``."""
    line = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, MOST)
    at = tl.arange(0, BLOCK)
    inside = at < SIZE
    known = tl.load(sums + line * PARTS + part, mask=part < PARTS, other=-float("inf"))
    weights = tl.exp(known - tl.max(known, axis=0))
    shown = (part < PARTS)[:, None] & inside[None, :]
    found = tl.load(attended + (line * PARTS + part[:, None]) * SIZE + at[None, :], mask=shown, other=0.0)
    found = tl.sum(found * weights[:, None], axis=0) / tl.sum(weights, axis=0)
    tl.store(joined + line * SIZE + at, found.to(joined.dtype.element_ty), mask=inside)
