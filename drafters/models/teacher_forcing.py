"""How drafters would have done on text that is already verified, from one forward over it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch.nn import functional

from drafters.base import Acceptances, Evidence, common_prefix
from drafters.models.window import Window
from drafters.sampling import SamplingParams, certainties, probabilities


def gamma_of(logits: torch.Tensor, evidence: Evidence) -> np.ndarray:
    """γ, float64 ``(m, N)``, from teacher-forced drafter logits ``(N, m, V)``.

    At temperature 0 it is 1 where the drafter's choice is the emitted token, else 0; of sampled chains 1 − TV(p, q) =
    Σ_v min(p_v, q_v) (HedgeSpec Thm 1).
    """
    if evidence.p is None:
        emitted = torch.tensor(evidence.context[evidence.start :], device=logits.device)
        return (logits.argmax(dim=-1) == emitted).T.cpu().numpy().astype(np.float64)
    q = probabilities(logits, evidence.params)
    return torch.minimum(evidence.p, q).sum(dim=-1).T.clamp(0.0, 1.0).double().cpu().numpy()


def by_depth(chances: np.ndarray, sure: np.ndarray, log_confidences: np.ndarray, length: int) -> np.ndarray:
    """γ by depth, float64 ``(positions, K, N)``, of drafts that end with the token at which the sum of its
    log-probabilities falls below the drafter's confidence; as of :meth:`~drafters.base.Drafter.gamma`.

    Args:
        chances: that the next token is accepted, ``(N, positions)``.
        sure: log-probability that the draft's token is the text's, ``(N, positions)``; minus infinity where it is not.
        log_confidences: ``(N,)``.
        length: K.
    """
    drafters, positions = chances.shape
    gamma, sums = np.zeros((positions, length, drafters)), np.zeros(chances.shape)
    least = np.maximum(log_confidences, -sys.float_info.max)[:, None]  # of a draft that holds the text so far
    for depth in range(min(length, positions)):
        gamma[depth:, depth] = (chances[:, depth:] * (sums >= least)).T
        sums = sums[:, :-1] + sure[:, depth:-1]
    return gamma


class Judged:
    """Where drafters of one text agree with it, kept so that no position of it is fed to them for this twice."""

    def __init__(self, drafters: int):
        self.drafters = drafters
        self.forget()

    def forget(self) -> None:
        """Keep nothing: another text begins, or the drafters have changed."""
        self.text: Sequence[int] = ()
        self.start = 0
        self.hits, self.sure = np.zeros((self.drafters, 0), dtype=bool), np.zeros((self.drafters, 0))

    def at(self, part: Evidence, teacher_forced: Callable[[Evidence], torch.Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """At the positions of ``part``: whether the drafters' choices are the text's tokens, bool ``(drafters, m)``,
        and how probable these are to them (logarithm), minus infinity where they are not."""
        known = common_prefix(self.text, part.context) - part.start if self.start <= part.start else 0
        begin = part.start - self.start
        hits, sure = (kept[:, begin : begin + max(known, 0)] for kept in (self.hits, self.sure))
        known = hits.shape[1]
        if known < len(part):
            new = Evidence(part.context, part.start + known, None, part.params)
            logits = teacher_forced(new)
            hit = gamma_of(logits, new).T > 0
            certain = np.full(hit.shape, -np.inf)
            certain[hit] = certainties(logits[torch.from_numpy(hit).to(logits.device)])
            hits, sure = np.append(hits, hit, axis=1), np.append(sure, certain, axis=1)
        self.text, self.start, self.hits, self.sure = part.context, part.start, hits, sure
        return hits, sure


def judge(
    window: Window,
    evidence: Evidence,
    log_confidences: Sequence[float],
    teacher_forced: Callable[[Evidence], torch.Tensor],
    judged: Judged,
) -> np.ndarray:
    """γ ``(m, drafters)``, or ``(m, K, drafters)`` of drafts that end where the drafter is no longer confident; 0
    beyond the window.

    Args:
        log_confidences: of each drafter.
        teacher_forced: logits ``(drafters, m, V)`` at the positions of an evidence.
        judged: what is known of the text from before, where drafters may be unsure.
    """
    if max(log_confidences) > -math.inf:
        start = evidence.begins().start  # of what is before the evidence only the text's tokens count
        p = None if evidence.p is None else functional.pad(evidence.p, (0, 0, evidence.start - start, 0))
        begun = Evidence(evidence.context, start, p, evidence.params)
        found = [
            judged.at(part, teacher_forced) if part.p is None else _sampled(part, part.p, teacher_forced)
            for _, part in window.parts(begun)
        ]
        beyond = np.zeros((len(log_confidences), len(begun) - sum(chances.shape[1] for chances, _ in found)))
        chances, sure = (np.concatenate(rows, axis=1) for rows in zip(*found, (beyond, beyond), strict=True))
        depths = by_depth(chances, sure, np.array(log_confidences), evidence.params.draft_length)
        return depths[-len(evidence) :]
    gamma, done = np.zeros((len(evidence), len(log_confidences))), 0
    for count, part in window.parts(evidence):
        gamma[done : done + count] = gamma_of(teacher_forced(part), part)
        done += count
    return gamma


def _sampled(
    part: Evidence, p: torch.Tensor, teacher_forced: Callable[[Evidence], torch.Tensor]
) -> tuple[np.ndarray, np.ndarray]:
    """At the positions of ``part``: the chances that what sampled drafts go on with is accepted, and how probable the
    text's tokens are to the drafters (logarithm); both ``(drafters, m)``."""
    q = probabilities(teacher_forced(part), part.params)
    text = torch.tensor(part.context[part.start :], device=q.device).expand(len(q), 1, -1).mT
    sure = q.gather(-1, text)[..., 0].log()
    chances = torch.minimum(p, q).sum(dim=-1).clamp(0.0, 1.0)
    return chances.double().cpu().numpy(), sure.double().cpu().numpy()


class GreedyDrafter(Protocol):
    """A drafter whose greedy drafts end with the token at which it is no longer confident."""

    log_confidence: float

    def goes_on(self, context: Sequence[int], most: int, sure: float) -> list[float]:
        """Log-probabilities of the up to ``most`` tokens that a draft adds after ``context``, where those of its tokens
        so far add up to ``sure``."""


def follow(
    window: Window,
    context: Sequence[int],
    start: int,
    length: int,
    drafters: Sequence[GreedyDrafter],
    teacher_forced: Callable[[Evidence], torch.Tensor],
    model_window: int,
) -> Acceptances:
    """How long the greedy draft begun at each position is and how far the text follows it; ``(drafters, positions)``.

    It does so as long as the teacher-forced predictions are hits, for until then both see the same context. Drafts that
    leave the text at the same position go on alike from there, so one draft from each such position tells the rest, and
    only if the drafter may end its drafts early. A draft keeps the view it began with, and ends where the drafter is no
    longer confident or the positions of its model end.

    Args:
        teacher_forced: logits ``(drafters, m, V)`` at the positions of an evidence.
    """
    found = np.zeros((2, len(drafters), len(context) - start), dtype=np.int64)
    done = 0
    for count, part in window.parts(Evidence(context, start, None, SamplingParams()), ahead=length - 1):
        known = Evidence(part.context[: model_window + 1], part.start, None, part.params)
        logits = teacher_forced(known)
        choices = logits.argmax(dim=-1).tolist()
        sure = np.minimum(certainties(logits), 0.0)
        limits = np.clip(model_window + 1 - part.start - np.arange(count), 0, length).tolist()
        for row, drafter in enumerate(drafters):
            found[:, row, done : done + count] = _follow(drafter, known, choices[row], sure[row], limits)
        done += count
    accepted, drafted = found
    return Acceptances(accepted, drafted, drafted)


def _follow(
    drafter: GreedyDrafter, text: Evidence, choices: Sequence[int], sure: np.ndarray, limits: Sequence[int]
) -> np.ndarray:
    """Accepted and drafted tokens ``(2, len(limits))`` of the drafts begun at the first positions of ``text``.

    Args:
        choices, sure: what the drafter predicts at each position, and how probable that is to it (logarithm).
        limits: most tokens of each draft.
    """
    found = np.zeros((2, len(limits)), dtype=np.int64)
    leaves, beyond = len(text), None
    for begin in reversed(range(len(text))):
        if choices[begin] != text.context[text.start + begin]:
            leaves, beyond = begin, None
        if begin >= len(limits) or not (limit := limits[begin]):
            continue
        drafted = limit
        if drafter.log_confidence > -math.inf:
            doubts = sure[begin : min(leaves + 1, begin + limit)].cumsum()
            if beyond is None and len(doubts) < limit and doubts[-1] >= drafter.log_confidence:
                left = [*text.context[: text.start + leaves], *choices[leaves : leaves + 1]]
                beyond = np.cumsum(drafter.goes_on(left, limit - len(doubts), float(doubts[-1])))
            if beyond is not None:
                doubts = np.append(doubts, doubts[-1] + beyond)
            ended = np.flatnonzero(doubts < drafter.log_confidence)
            drafted = min(limit, int(ended[0]) + 1) if len(ended) else limit
        found[:, begin] = min(leaves - begin, drafted), drafted
    return found
