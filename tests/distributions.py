"""Are sampled outputs distributed as the target alone would have them? Chi-square tests against exact probabilities.

A correct sampler fails such a test with probability ``ALPHA``; seeds are fixed, so a test that passes always does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from drafters.sampling import SamplingParams, probabilities
from tests import tiny

ALPHA = 1e-4
BINS = 10


def p_value(counts: Counter, exact: Mapping[Any, float]) -> float:
    """Of Pearson's chi-square test that ``counts`` were drawn from ``exact``; 0 if an impossible outcome occurred."""
    if any(exact.get(outcome, 0.0) == 0.0 for outcome in counts):
        return 0.0
    total = sum(counts.values())
    statistic, cells, observed, expected = 0.0, 0, 0, 0.0
    for outcome, probability in sorted(exact.items(), key=lambda item: item[1]):
        observed += counts[outcome]
        expected += total * probability
        if expected >= 5.0:  # rare outcomes are pooled until the approximation holds
            statistic += (observed - expected) ** 2 / expected
            cells, observed, expected = cells + 1, 0, 0.0
    freedom, statistic = torch.tensor((cells - 1) / 2.0), torch.tensor(statistic / 2.0)
    return float(torch.special.gammaincc(freedom.double(), statistic.double()))


def exact_outputs(model: PreTrainedModel, prompt: Sequence[int], params: SamplingParams) -> dict[tuple, float]:
    """Probability of each output of ``max_new_tokens`` tokens after ``prompt``, by forwards without a cache."""
    outputs = {(): 1.0}
    for _ in range(params.max_new_tokens):
        longer = {}
        for output, mass in outputs.items():
            p = probabilities(tiny.logits_of(model, [*prompt, *output])[-1], params)
            longer |= {(*output, token): mass * chance for token, chance in enumerate(p.double().tolist()) if chance}
        outputs = longer
    return outputs


def p_value_of_tokens(
    model: PreTrainedModel, prompt: Sequence[int], outputs: Sequence[Sequence[int]], params: SamplingParams
) -> float:
    """Whether each token of long outputs, deep into them too, follows the target's distribution there.

    Under it ``F(x−) + u·p(x)`` is uniform, with F the distribution function over tokens from the most to the
    least probable and u uniform: the randomised probability integral transform.
    """
    uniform, counts = torch.Generator().manual_seed(3), Counter()
    for output in outputs:
        logits = tiny.logits_of(model, [*prompt, *output])[len(prompt) - 1 : -1]
        p = probabilities(logits, params).double().cpu()
        token_p = p.gather(1, torch.tensor(list(output))[:, None])
        if not (token_p > 0).all():
            return 0.0
        before = p.where(p > token_p, 0.0).sum(dim=1, keepdim=True)
        place = before + token_p * torch.rand(token_p.shape, generator=uniform)
        counts.update((place.flatten() * BINS).long().clamp_(max=BINS - 1).tolist())
    return p_value(counts, dict.fromkeys(range(BINS), 1 / BINS))
