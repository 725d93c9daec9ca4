"""How drafters would have done on text that is already verified, from one forward over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from drafters.base import Evidence
from drafters.window import Window
from multidraft.feedback import greedy_gamma, sampled_gamma
from multidraft.sampling import SamplingParams, probabilities


def gamma_of(logits: torch.Tensor, evidence: Evidence) -> np.ndarray:
    """γ ``(m, N)`` from teacher-forced drafter logits ``(N, m, V)``."""
    if evidence.p is None:
        emitted = torch.tensor(evidence.context[evidence.start :], device=logits.device)
        return greedy_gamma(logits.argmax(dim=-1), emitted)
    return sampled_gamma(evidence.p, probabilities(logits, evidence.params))


def judge(window: Window, evidence: Evidence, drafters: int, gamma: Callable[[Evidence], np.ndarray]) -> np.ndarray:
    """γ ``(m, drafters)`` at all positions, by ``gamma`` of each part that shares a view; 0 beyond the window."""
    judged = np.zeros((len(evidence), drafters))
    done = 0
    for count, part in window.parts(evidence):
        judged[done : done + count] = gamma(part)
        done += count
    return judged


def follow(
    window: Window,
    context: Sequence[int],
    start: int,
    length: int,
    log_confidences: Sequence[float],
    teacher_forced: Callable[[Evidence], torch.Tensor],
    model_window: int,
) -> np.ndarray:
    """How far the greedy draft begun at each position follows the recorded text; int64 ``(drafters, positions)``.

    It does so exactly as long as the teacher-forced predictions are hits, for until then both see the same context:
    the acceptance table needs no drafting at all (SPEC 6). A draft keeps the view it began with, and ends where the
    drafter is no longer confident or the positions of its model end.

    Args:
        log_confidences: of each drafter.
        teacher_forced: logits ``(drafters, m, V)`` at the positions of an evidence.
    """
    accepted = np.zeros((len(log_confidences), len(context) - start), dtype=np.int64)
    done = 0
    for count, part in window.parts(Evidence(context, start, None, SamplingParams()), ahead=length - 1):
        known = Evidence(part.context[: model_window + 1], part.start, None, part.params)
        logits = teacher_forced(known)
        scores = logits.float()
        top = (scores.amax(dim=-1) - scores.logsumexp(dim=-1)).clamp_(max=0.0).double().cpu().numpy()
        hits = gamma_of(logits, known).T > 0
        for row, hit, sure, confidence in zip(accepted, hits, top, log_confidences, strict=True):
            runs = np.minimum(run_lengths(hit, length), confident_lengths(sure, confidence))[:count]
            row[done : done + len(runs)] = runs
        done += count
    return accepted


def run_lengths(hits: np.ndarray, length: int) -> np.ndarray:
    """How many hits follow each other from each position on, at most ``length``."""
    runs = np.zeros(len(hits) + 1, dtype=np.int64)
    for s in range(len(hits) - 1, -1, -1):
        runs[s] = runs[s + 1] + 1 if hits[s] else 0
    return np.minimum(runs[:-1], length)


def confident_lengths(log_probabilities: np.ndarray, log_confidence: float) -> np.ndarray:
    """Length of the draft begun at each position: it ends with the token whose sum falls below the confidence."""
    doubts = np.concatenate([[0.0], -log_probabilities.cumsum()])
    ends = np.searchsorted(doubts[1:], doubts[:-1] - log_confidence, side="right")
    return ends + 1 - np.arange(len(log_probabilities))
