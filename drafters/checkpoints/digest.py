"""Digests by which a pool's history tells weights and files apart."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch

SAMPLED = 64
"""Numbers of each tensor that go into a digest, evenly spaced: enough to notice another training, cheap to read."""


def digest_of(*parts: str | Mapping[str, torch.Tensor]) -> str:
    """16 hex digits of texts, and of named tensors: names, shapes and :data:`SAMPLED` numbers each."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
            continue
        for name, tensor in part.items():
            flat = tensor.flatten()
            sample = flat[:: max(1, len(flat) // SAMPLED)].float().cpu().contiguous()
            digest.update(f"{name} {tuple(tensor.shape)}".encode() + sample.numpy().tobytes())
    return digest.hexdigest()[:16]


def file_digest(file: Path) -> str:
    """16 hex digits of a file's content."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
