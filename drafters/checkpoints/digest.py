"""Digests by which a pool's history tells weights and files apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

SAMPLED = 64
"""Numbers of each tensor that go into a digest, evenly spaced: enough to notice another training, cheap to read."""


def card_digest(
    card: str, target: Mapping[str, torch.Tensor] | None, drafters: Iterable[str], dtype: torch.dtype | None = None
) -> str:
    """What stands for a card and the weights that it names.

    Args:
        card: its text.
        target: the target's weights; ``None`` where they are out of reach.
        drafters: the digests of its drafters.
        dtype: what the target's weights are rounded to first; by default they are taken as they are.
    """
    return digest_of(card, *([] if target is None else [target]), *drafters, dtype=dtype)


def digest_of(*parts: str | Mapping[str, torch.Tensor], dtype: torch.dtype | None = None) -> str:
    """16 hex digits of texts, and of named tensors: names, shapes and :data:`SAMPLED` numbers each, in ``dtype``."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
            continue
        for name, tensor in part.items():
            flat = tensor.flatten()
            sample = flat[:: max(1, len(flat) // SAMPLED)].to(dtype or flat.dtype).float().cpu().contiguous()
            digest.update(f"{name} {tuple(tensor.shape)}".encode() + sample.numpy().tobytes())
    return digest.hexdigest()[:16]


def file_digest(file: Path) -> str:
    """16 hex digits of a file's content."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
