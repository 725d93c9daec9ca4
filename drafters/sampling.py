"""Sampling parameters, and the distribution they make of logits."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
import torch

from drafters.arguments import whole
from drafters.errors import quoted

MAX_NEW_TOKENS = 1_000_000
"""Most tokens that may be asked for; the target's context window sets a lower limit."""

MAX_DRAFT_LENGTH = 64
"""Most tokens of a draft."""


@dataclass(frozen=True)
class SamplingParams:
    """What the user asks of one generation; a seed and texts that end it are arguments of their own.

    Attributes:
        max_new_tokens: most tokens to generate, from 1 to ``MAX_NEW_TOKENS``.
        temperature: 0 is greedy decoding; otherwise logits are divided by it.
        top_p: keep the fewest most probable tokens whose mass reaches ``top_p``; 1 keeps all.
        top_k: keep the ``top_k`` most probable tokens; 0 keeps all.
        draft_length: most tokens a drafter proposes per round (K in the papers), from 1 to ``MAX_DRAFT_LENGTH``; by
            default the pool's, which a generation puts in the place of ``None`` (:meth:`drafting`).

    Raises:
        ValueError: a parameter has the wrong type or is out of range; the message begins with its name.
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    draft_length: int = None  # type: ignore[assignment]  # no generation keeps that

    def __post_init__(self) -> None:
        most = {"max_new_tokens": MAX_NEW_TOKENS, "draft_length": MAX_DRAFT_LENGTH, "top_k": 2**31 - 1}
        for name, high in most.items():
            value, low = getattr(self, name), 0 if name == "top_k" else 1
            if value is None and name == "draft_length":
                continue
            if (number := whole(value)) is None:
                raise ValueError(f"{name} must be a whole number, got {quoted(value)}")
            object.__setattr__(self, name, value := number)
            if not low <= value <= high:
                bound = f"least {low}" if value < low else f"most {high:,}"
                raise ValueError(f"{name} must be at {bound}, got {quoted(value)}")
        for name in ("temperature", "top_p"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ValueError(f"{name} must be a number, got {quoted(value)}")
            if not isinstance(value, int):  # one too large for a float is told as such
                object.__setattr__(self, name, float(value))
        if not 0 <= self.temperature <= sys.float_info.max:  # false for nan, too
            raise ValueError(f"temperature must be 0 (greedy) or a positive number, got {quoted(self.temperature)}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {quoted(self.top_p)}")

    def drafting(self, draft_length: int) -> SamplingParams:
        """These, with ``draft_length`` where they name none."""
        return replace(self, draft_length=self.draft_length or draft_length)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


def probabilities(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Distribution ``(..., V)`` float32 after temperature, top-k and top-p, in that order.

    Ties at the top-k border are all kept, as are the tokens that reach ``top_p`` exactly. At
    temperature 0 the logits are taken at temperature 1 without truncation: nothing is drawn from
    them then, they only feed the alignment feedback.
    """
    logits = logits.float()
    if params.greedy:
        return torch.softmax(logits, dim=-1)
    # The largest becomes 0, so that a small temperature makes none infinite.
    logits = (logits - logits.amax(dim=-1, keepdim=True)).div_(_temperature(params))
    if 0 < params.top_k < logits.shape[-1]:
        border = logits.topk(params.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < border, -torch.inf)
    probs = torch.softmax(logits, dim=-1)
    if params.top_p < 1.0:
        ordered, order = probs.sort(dim=-1, descending=True, stable=True)
        # The mass *before* a token decides, so the token that crosses top_p stays: there is always one, also of a top_p
        # that is 0 in float32.
        dropped = ordered.cumsum(dim=-1) - ordered >= max(params.top_p, 1e-30)
        probs = probs.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), 0.0)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return probs


def choices(logits: torch.Tensor) -> tuple[list[int], list[bool]]:
    """The most probable tokens of logits ``(T, V)`` (ties: the lowest id), and whether their logits are finite: they
    are not where any is NaN or plus infinity, or all are minus infinity."""
    if logits.device.type == "cpu" and logits.dtype == torch.float32:  # NumPy is quicker for so little
        scores = logits.numpy()
        best = scores.argmax(axis=-1)
        return best.tolist(), np.isfinite(scores[np.arange(len(best)), best]).tolist()
    found = logits.argmax(dim=-1, keepdim=True)
    rows = torch.cat([found, logits.gather(-1, found).isfinite().long()], dim=-1).tolist()
    return [token for token, _ in rows], [bool(finite) for _, finite in rows]


def likeliest(logits: torch.Tensor) -> tuple[int, float]:
    """The most probable token of logits ``(V,)`` (ties: the lowest id) and its log-probability."""
    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        scores = logits.numpy()
        best = int(scores.argmax())
        return best, -math.log(np.exp(scores - scores[best]).sum())
    best, row = int(logits.argmax()), logits.float()  # half precision is too coarse for probabilities near 1
    return best, float(row[best] - row.logsumexp(dim=-1))


def certainties(logits: torch.Tensor) -> np.ndarray:
    """Log-probabilities of the most probable tokens of logits ``(..., V)``, float64 ``(...)``."""
    rows = logits.float()
    return (rows.amax(dim=-1) - rows.logsumexp(dim=-1)).double().cpu().numpy()


def uniforms(count: int, generator: torch.Generator) -> torch.Tensor:
    """So many uniform numbers on the generator's device; of a type that does not depend on torch's default, which
    changes while another pool is being loaded."""
    return torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)


def drawn(probs: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The token ids ``(N,)`` that uniform numbers ``(N,)`` draw from ``probs`` ``(N, V)`` (need not be normalised).

    Unlike ``torch.multinomial`` it does not wait for the device."""
    cumulated = probs.double().cumsum(dim=-1)
    points = uniform[:, None] * cumulated[:, -1:]
    return torch.searchsorted(cumulated, points, right=True)[:, 0].clamp_(max=probs.shape[-1] - 1)


def draw(probs: torch.Tensor, generator: torch.Generator) -> int:
    """Draw one token id from ``probs`` ``(V,)`` (need not be normalised)."""
    return draw_by(probs, float(uniforms(1, generator)))


def draw_by(probs: torch.Tensor, uniform: float) -> int:
    """The token id that a uniform number draws from ``probs`` ``(V,)`` (need not be normalised)."""
    if probs.device.type != "cpu":
        return int(drawn(probs[None], torch.tensor([uniform], dtype=torch.float64, device=probs.device)))
    return _place(probs.numpy().cumsum(dtype=np.float64), uniform)  # NumPy is quicker for so little


def sampled(logits: np.ndarray, params: SamplingParams, uniform: float) -> tuple[int, float, np.ndarray]:
    """What a uniform number draws from logits ``(V,)``, float32: the place, its log-probability, and the distribution
    ``(V,)`` that it was drawn from, that of :func:`probabilities`, without what PyTorch takes for so little."""
    if params.top_k or params.top_p < 1.0:
        probs = probabilities(torch.from_numpy(logits), params).numpy()
        cumulated = probs.cumsum(dtype=np.float64)
    else:
        with np.errstate(all="ignore"):  # what is no number is found in verification
            probs = logits - logits.max()
            probs /= _temperature(params)
            np.exp(probs, out=probs)
            cumulated = probs.cumsum(dtype=np.float64)
            probs /= float(cumulated[-1])
    place = _place(cumulated, uniform)
    chance = float(probs[place])
    return place, math.log(chance) if chance else -math.inf, probs


def _place(cumulated: np.ndarray, uniform: float) -> int:
    return min(int(cumulated.searchsorted(uniform * cumulated[-1], side="right")), len(cumulated) - 1)


def _temperature(params: SamplingParams) -> float:
    """Within float32's reach: one beyond acts like the last within it, so that minus infinity stays what it is."""
    return min(max(params.temperature, 1e-30), 1e30)
