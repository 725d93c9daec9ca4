"""Lossless acceptance of a draft: what leaves this function is distributed as the target alone would have it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from drafters.draft import Draft
from drafters.sampling import SamplingParams, choices, draw, probabilities


@dataclass(frozen=True)
class Verdict:
    """The outcome of a verification.

    Attributes:
        path: indices of the accepted draft nodes, from the root on.
        own: the target's own token: the correction after a rejection, the bonus after full acceptance.
        choices: the target's most probable token after the context and after each node; ``None`` for sampled decoding,
            which needs none.
        probs: target probabilities ``(n + 1, V)``, row 0 after the context and row ``j + 1`` after node
            ``j``; ``None`` for greedy decoding, which needs none.
    """

    path: tuple[int, ...]
    own: int
    choices: list[int] | None = None
    probs: torch.Tensor | None = None


def verify(draft: Draft, logits: torch.Tensor, params: SamplingParams, generator: torch.Generator) -> Verdict:
    """Accept the longest valid path of ``draft`` and add one token of the target's own.

    Args:
        draft: the proposed tree, possibly empty.
        logits: target logits ``(n + 1, V)``, row 0 after the context and row ``j + 1`` after node ``j``.
        params: temperature 0 accepts by equality with the argmax (ties: the lowest id); otherwise drafts
            that were sampled are accepted by speculative sampling (one child: Leviathan et al. 2023;
            several: recursive rejection, SpecInfer 2024) and deterministic ones by drawing from the target.
        generator: source of randomness on the device of ``logits``.
    """
    if params.greedy:
        return _verify_greedy(draft, choices(logits))
    probs = probabilities(logits, params)
    path: list[int] = []
    node = -1
    while True:
        step = _accept_sampled_child if draft.sampled else _accept_drawn_child
        node, own = step(draft, node, probs[node + 1], generator)
        if own is not None:
            return Verdict(tuple(path), own, probs=probs)
        path.append(node)


def _verify_greedy(draft: Draft, wanted_by: list[int]) -> Verdict:
    path: list[int] = []
    node = -1
    while True:
        wanted = wanted_by[node + 1]
        node = next((child for child in draft.children(node) if draft.tokens[child] == wanted), -1)
        if node < 0:
            return Verdict(tuple(path), wanted, wanted_by)
        path.append(node)


def _accept_drawn_child(draft: Draft, node: int, p: torch.Tensor, generator: torch.Generator) -> tuple[int, int | None]:
    """Deterministic children: the target draws, and the draft either contains that token or not."""
    token = draw(p, generator)
    for child in draft.children(node):
        if draft.tokens[child] == token:
            return child, None
    return -1, token


def _accept_sampled_child(
    draft: Draft, node: int, p: torch.Tensor, generator: torch.Generator
) -> tuple[int, int | None]:
    """Sampled children, tried in order: accept with min(1, p/q), else continue with the residual norm((p − q)₊).

    Siblings are drawn without replacement, so a tried token is removed from the next sibling's q.
    """
    assert draft.q is not None
    tried: list[int] = []
    for child in draft.children(node):
        token = draft.tokens[child]
        q = draft.q[child]
        if tried:
            q = q.index_fill(0, torch.tensor(tried, device=q.device), 0.0)
            q = q / q.sum()
        # Of a type that does not depend on torch's default, which changes while another pool is being loaded.
        u = float(torch.rand((), generator=generator, device=p.device, dtype=torch.float32))
        if u * float(q[token]) < float(p[token]):
            return child, None
        residual = (p - q).clamp_(min=0.0)
        mass = residual.sum()
        # p = q to the last bit leaves no residual; a rejection then has probability zero but for rounding.
        p = residual / mass if float(mass) > 0.0 else p
        tried.append(token)
    return -1, draw(p, generator)
