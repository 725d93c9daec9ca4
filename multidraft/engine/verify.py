"""Lossless acceptance of a draft: what leaves this function is distributed as the target alone would have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from drafters.draft import Draft
from drafters.errors import DraftError, TargetError
from drafters.hardware import to_device
from drafters.sampling import SamplingParams, choices, draw, draw_by, drawn, probabilities, uniforms

Choose = Callable[[torch.Tensor], tuple[list[int], list[bool]]]
"""Finds the most probable tokens of logits, as :func:`~drafters.sampling.choices` does."""

TOLERANCE = 1e-3
"""Of the sum of probabilities, which half precision and large vocabularies round."""


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


def verify(
    draft: Draft,
    logits: torch.Tensor,
    params: SamplingParams,
    generator: torch.Generator,
    choose: Choose = choices,
) -> Verdict:
    """Accept the longest valid path of ``draft`` and add one token of the target's own.

    Args:
        draft: the proposed tree, possibly empty.
        logits: target logits ``(n + 1, V)``, row 0 after the context and row ``j + 1`` after node ``j``.
        params: temperature 0 accepts by equality with the argmax (ties: the lowest id); otherwise drafts
            that were sampled are accepted by speculative sampling (one child: Leviathan et al. 2023;
            several: recursive rejection, SpecInfer 2024) and deterministic ones by drawing from the target.
        generator: source of randomness on the device of ``logits``.
        choose: finds the most probable tokens of ``logits``.

    Raises:
        TargetError: logits that are not numbers, after the context or an accepted node.
        DraftError: a sampled draft whose ``q`` are no probabilities, or give a token none. This hangs on the draft
            alone, not on what is drawn here: another one, such as none, may be verified instead.
    """
    if params.greedy:
        return _follow(draft, *choose(logits))
    probs = probabilities(logits, params)
    if not (draft.sampled and len(draft)):  # the target draws after every node; what it draws is in the draft or not
        verdict = _follow(draft, *_draws(probs, generator))
    elif draft.q is None or draft.q.shape != probs[1:].shape:
        raise DraftError("its probabilities are of other tokens than the target's")
    elif not draft.is_chain:
        verdict = _verify_sampled_tree(draft, probs, generator)
    elif probs.device.type == "cpu":
        verdict = _verify_sampled_chain(draft, probs.numpy(), generator)
    else:
        verdict = _verify_sampled_chain_at_once(draft, probs, generator)
    return replace(verdict, choices=None, probs=probs)


def _sound(probs: torch.Tensor) -> torch.Tensor:
    """1 for each row of probabilities ``(n, V)`` that are numbers of sum 1, else 0; 64-bit integers."""
    return ((probs.sum(dim=-1) - 1.0).abs() < TOLERANCE).long()


def _draws(probs: torch.Tensor, generator: torch.Generator) -> tuple[list[int], list[int]]:
    """A token drawn from each row, and whether that is sound; the device is waited for once."""
    points = uniforms(len(probs), generator)
    if probs.device.type == "cpu":
        sound = [abs(total - 1.0) < TOLERANCE for total in probs.numpy().sum(axis=-1).tolist()]
        return [draw_by(row, point) for row, point in zip(probs, points.tolist(), strict=True)], sound
    tokens, sound = torch.stack([drawn(probs, points), _sound(probs)]).tolist()
    return tokens, sound


def _drawable(q: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """1 for each row of ``q`` ``(n, V)`` from which its one of ``tokens`` ``(n,)`` may have been drawn, else 0."""
    return _sound(q) * (q.amin(dim=-1) >= 0.0) * (q.gather(1, tokens[:, None])[:, 0] > 0.0)


def _check(sound: Sequence[int], path: Sequence[int]) -> None:
    """Raise TargetError unless the rows of the context and of the accepted nodes are sound."""
    if not all(sound[node + 1] for node in (-1, *path)):
        raise TargetError(
            "the target's scores are not finite numbers: its weights are damaged, or its numbers outgrow the dtype; "
            "check its files, or set another dtype in the card"
        )


def _check_q(sound: bool) -> None:
    """Raise DraftError unless q are probabilities from which the draft's tokens can have been drawn."""
    if not sound:
        raise DraftError(
            "its q is no probability distribution (NaN, a negative value, or a sum other than 1), or gives a drafted "
            "token probability 0"
        )


def _follow(draft: Draft, wanted_by: list[int], sound: Sequence[int]) -> Verdict:
    """The path of the tokens that the target wants after the context and after each node."""
    path: list[int] = []
    node = -1
    while True:
        wanted = wanted_by[node + 1]
        node = next((child for child in draft.children(node) if draft.tokens[child] == wanted), -1)
        if node < 0:
            _check(sound, path)
            return Verdict(tuple(path), wanted, wanted_by)
        path.append(node)


def _verify_sampled_chain(draft: Draft, p: np.ndarray, generator: torch.Generator) -> Verdict:
    """Accept each token with min(1, p/q), and after the first rejection draw from the residual norm((p − q)₊)
    (Leviathan et al. 2023, Alg. 1). In NumPy, which is quicker for so little; ``p`` is ``(n + 1, V)``."""
    assert draft.q is not None
    count, q, tokens = len(draft), draft.q.detach().float().numpy(), draft.tokens
    points = uniforms(count + 1, generator).tolist()
    drafted = [float(q[node, token]) for node, token in enumerate(tokens)]
    _check_q(bool((np.abs(q.sum(axis=-1) - 1.0) < TOLERANCE).all() and q.min() >= 0.0 and min(drafted) > 0.0))
    kept = 0
    while kept < count and points[kept] * drafted[kept] < p[kept, tokens[kept]]:
        kept += 1
    _check([abs(p[kept].sum() - 1.0) < TOLERANCE], ())  # no token before is accepted by what is no number
    # After the last token there is no q. p = q to the last bit leaves no residual; a rejection then has probability
    # zero but for rounding.
    residual = np.maximum(p[kept] - q[kept], 0.0) if kept < count else p[kept]
    own = draw_by(torch.from_numpy(residual if residual.any() else p[kept]), points[-1])
    return Verdict(tuple(range(kept)), own)


def _verify_sampled_chain_at_once(draft: Draft, probs: torch.Tensor, generator: torch.Generator) -> Verdict:
    """The same on another device, all tokens at once, so that it is waited for once."""
    assert draft.q is not None
    count, p, q = len(draft), probs, draft.q
    tokens = to_device(torch.tensor(draft.tokens, dtype=torch.long), probs.device)[:, None]
    u = uniforms(count + 1, generator)
    chances = p[:count].gather(1, tokens)[:, 0]
    accepted = (u[:-1] * q.gather(1, tokens)[:, 0] < chances).cumprod(dim=0).sum(dim=0, keepdim=True)
    sound_q = _drawable(q, tokens[:, 0]).amin(dim=0, keepdim=True)
    # After the last token there is no q, so the residual is p itself.
    p, q = p.index_select(0, accepted), q.index_select(0, accepted.clamp(max=count - 1)) * (accepted < count)
    residual = (p - q).clamp_(min=0.0)
    # p = q to the last bit leaves no residual; a rejection then has probability zero but for rounding.
    own = drawn(torch.where(residual.sum(dim=-1, keepdim=True) > 0.0, residual, p), u[-1:])
    # Rows before it are sound: no token is accepted by what is no number.
    kept, last, drawable, sound = torch.cat([accepted, own, sound_q, _sound(p)]).tolist()
    _check_q(drawable)
    _check([sound], ())
    return Verdict(tuple(range(kept)), last)


def _verify_sampled_tree(draft: Draft, probs: torch.Tensor, generator: torch.Generator) -> Verdict:
    assert draft.q is not None
    # All of it before anything is drawn: whether a draft is refused must not hang on that.
    distinct = len({*zip(draft.parents, draft.tokens, strict=True)}) == len(draft)
    _check_q(distinct and bool(_drawable(draft.q, torch.tensor(draft.tokens, device=draft.q.device)).all()))
    path, node, sound = list[int](), -1, _sound(probs).tolist()
    while True:
        _check(sound, [node])
        node, own = _accept_sampled_child(draft, node, probs[node + 1], generator)
        if own is not None:
            return Verdict(tuple(path), own)
        path.append(node)


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
        u = float(uniforms(1, generator))
        if u * float(q[token]) < float(p[token]):
            return child, None
        residual = (p - q).clamp_(min=0.0)
        mass = residual.sum()
        # p = q to the last bit leaves no residual; a rejection then has probability zero but for rounding.
        p = residual / mass if float(mass) > 0.0 else p
        tried.append(token)
    return -1, draw(p, generator)
