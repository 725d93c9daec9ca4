"""Medusa and BPD drafters: drafts against brute force, the engine's output."""

import functools
import math
from collections import Counter

import numpy as np
import pytest
import torch

from drafters.base import Evidence
from drafters.card import Card
from drafters.kinds import medusa
from drafters.kinds.medusa import MedusaDrafter
from drafters.models.ngram import count_ngrams
from drafters.models.target import Target
from drafters.pool import Pool
from drafters.sampling import SamplingParams, probabilities
from multidraft.engine.decoding import generate
from multidraft.engine.verify import verify
from tests import tiny
from tests.distributions import ALPHA, exact_outputs, p_value
from tests.engine_cases import check_greedy, paths_of
from tests.medusa import (
    HEADS,
    bpd_tensors,
    load_heads,
    medusa_tensors,
    plain_logits,
    write_bpd,
    write_medusa,
)

GREEDY = SamplingParams(draft_length=8)
PROMPTS = tiny.prompts(3, seed=3, longest=12)

SETTINGS = {
    "chain": {},
    "chain, confident": {"confidence": 0.3},
    "tree": {"nodes": 12, "branches": 4},
    "small tree": {"nodes": 3, "branches": 5},
    "tree, confident": {"nodes": 12, "branches": 6, "confidence": 0.1},
    "rescored chain": {"rescored": True, "branches": 5, "weight": 0.8},
    "rescored tree": {"rescored": True, "nodes": 12, "branches": 4, "weight": 0.8},
    "rescored tree, confident": {"rescored": True, "nodes": 12, "branches": 6, "confidence": 0.1},
}


@pytest.fixture(scope="module")
def model():
    return tiny.llama(1)


@pytest.fixture(scope="module")
def rescorer(model):
    return count_ngrams([tiny.greedy(model, prompt, 30) for prompt in tiny.prompts(6, seed=8)], tiny.VOCAB)


@pytest.fixture(params=["medusa", "bpd"], scope="module")
def heads(request, model, tmp_path_factory):
    """Heads, and tensors to compute the same plainly from."""
    folder = tmp_path_factory.mktemp("heads")
    if request.param == "medusa":
        return load_heads("medusa", write_medusa(folder, medusa_tensors()), model), medusa_tensors()
    return load_heads("bpd", write_bpd(folder, bpd_tensors()), model), bpd_tensors()


def make_drafter(heads, source, rescorer, *, rescored=False, **settings):
    return MedusaDrafter("heads", heads, source, tiny.VOCAB, rescorer=rescorer if rescored else None, **settings)


def draft_of(drafter, context, length=HEADS, params=GREEDY):
    return drafter.propose(context, length, params, torch.Generator())


class Plain:
    """Drafts by their definition, over all paths."""

    def __init__(self, model, tensors, rescorer, *, rescored=False, nodes=None, branches=8, confidence=0.0, weight=0.3):
        self.model, self.tensors, self.rescorer = model, tensors, rescorer if rescored else None
        self.nodes, self.branches, self.confidence, self.weight = nodes, branches, confidence, weight
        self.log_probabilities = functools.cache(self.log_probabilities)

    def log_probabilities(self, known, head):
        logits = plain_logits(self.tensors, self.model, tiny.states_of(self.model, known, [-1])[-1:], head)[0]
        return torch.log_softmax(logits.double(), dim=-1).tolist()

    def shares(self, context, depth, path):
        """Candidates and their probabilities after ``path``."""
        log = self.log_probabilities(tuple(context[:-1]), depth)
        top = sorted(range(tiny.VOCAB), key=lambda token: -log[token])[: self.branches]
        if self.rescorer is None:
            return {token: math.exp(log[token]) for token in top}
        text = [*context, *path]
        scores = {
            t: math.exp(log[t]) * math.exp(self.rescorer.log_probabilities(text[-2:], [t])[0]) ** self.weight
            for t in top
        }
        mass = sum(math.exp(log[token]) for token in top)
        return {token: score * mass / sum(scores.values()) for token, score in scores.items()}

    def paths(self, context, length):
        depth = min(length, HEADS)
        if len(context) < 2:
            return []
        if self.nodes is None:
            path, product = (), 1.0
            while len(path) < depth and product >= self.confidence:
                shares = self.shares(context, len(path), path)
                best = max(shares, key=shares.get)
                path, product = (*path, best), product * shares[best]
            return [path[: i + 1] for i in range(len(path))]
        products, level = {}, {(): 1.0}
        for d in range(depth):
            level = {
                (*path, token): product * share
                for path, product in level.items()
                for token, share in self.shares(context, d, path).items()
            }
            products |= level
        ranked = sorted(products, key=lambda path: (len(path) > 1, -products[path]))
        sure = [path for path in ranked if products[path] >= self.confidence]
        return (sure or ranked[:1])[: self.nodes]


@pytest.mark.parametrize("length", [2, HEADS + 3])
@pytest.mark.parametrize("setting", SETTINGS)
def test_drafts_are_what_they_are_defined_to_be(model, heads, rescorer, setting, length):
    network, tensors = heads
    drafter = make_drafter(network, Target(model), rescorer, **SETTINGS[setting])
    plain = Plain(model, tensors, rescorer, **SETTINGS[setting])
    assert drafter.parameter_count == network.parameter_count
    for context in [*PROMPTS, *tiny.prompts(2, seed=5, shortest=2)]:
        for params in (GREEDY, SamplingParams(temperature=0.7, draft_length=8)):
            draft = draft_of(drafter, context, length, params)
            assert draft.q is None and not draft.sampled
            assert sorted(paths_of(draft)) == sorted(plain.paths(context, length))


def test_without_a_state_or_a_length_there_is_no_draft(model, heads, rescorer):
    drafter = make_drafter(heads[0], Target(model), rescorer)
    assert len(draft_of(drafter, [3])) == len(draft_of(drafter, [3, 4], 0)) == 0
    assert len(draft_of(drafter, [3, 4], 1)) == 1
    assert drafter.acceptances([3], 1, 3).accepted.tolist() == []
    assert drafter.acceptances([3, 4], 1, 3).accepted.tolist() == [0]
    assert drafter.gamma(Evidence([3, 4], 1, None, GREEDY))[:, 0].tolist() == [0.0]


def test_a_weight_of_zero_changes_nothing(model, heads, rescorer):
    plain = make_drafter(heads[0], Target(model), None, nodes=9)
    rescored = make_drafter(heads[0], Target(model), rescorer, nodes=9, rescored=True, weight=0.0)
    for context in PROMPTS:
        assert draft_of(plain, context) == draft_of(rescored, context)


def test_tokens_beyond_the_vocabulary_are_not_proposed(model, heads):
    drafter = MedusaDrafter("heads", heads[0], Target(model), 3, nodes=40, branches=8)
    for context in PROMPTS:
        assert set(draft_of(drafter, context).tokens) == {0, 1, 2}


@pytest.mark.parametrize("chunk", [3, 64])
@pytest.mark.parametrize("setting", SETTINGS)
def test_gamma_and_acceptances_are_those_of_drafts_that_are_verified(
    model, heads, rescorer, outputs, setting, chunk, monkeypatch
):
    monkeypatch.setattr(medusa, "CHUNK", chunk)
    network, _ = heads
    target = Target(model)
    drafter = make_drafter(network, target, rescorer, **SETTINGS[setting])
    sampled, accepted_any = SamplingParams(temperature=1.0, draft_length=8), False
    single = (1, PROMPTS[0][:1], tiny.greedy(model, PROMPTS[0][:1], 20))
    for start, prompt, output in (single, (4, PROMPTS[1], outputs[1]), (4, PROMPTS[2], outputs[2])):
        context = [*prompt, *output]
        reader = make_drafter(network, Target(model), rescorer, **SETTINGS[setting])
        accepted, hits, masses, rows = [], [], [], []
        for s in range(max(start, len(prompt)), len(context)):
            target.prefill(context[:s])
            draft = draft_of(drafter, context[:s])
            logits = target.score(draft)
            path = verify(draft, logits, GREEDY, torch.Generator()).path
            accepted.append(min(len(path), len(context) - s))
            hits.append(float(bool(path)))
            rows.append(probabilities(logits[0], sampled))
            masses.append(float(rows[-1][[draft.tokens[child] for child in draft.children(-1)]].sum()))
        start = len(context) - len(accepted)
        found = reader.acceptances(context, start, HEADS).accepted
        assert found.dtype == np.int64 and found.tolist() == accepted
        assert reader.gamma(Evidence(context, start, None, GREEDY))[:, 0].tolist() == hits
        gamma = reader.gamma(Evidence(context, start, torch.stack(rows), sampled))
        assert gamma[:, 0] == pytest.approx(masses, abs=1e-5)
        accepted_any |= any(accepted)
    assert accepted_any


# Through the engine.


def pool_of(model, heads, rescorer, *, runtime="onnx", **settings):
    target = Target(model, tiny.RUNTIMES[runtime](model))
    card = Card.model_validate(
        {"name": "tiny", "title": "", "target": {"path": "."}, "drafters": [{"name": "lookup", "kind": "pld"}]}
    )
    return Pool(target, [make_drafter(heads, target, rescorer, **settings)], tiny.tokenizer(), card)


@pytest.fixture(scope="module")
def outputs(model):
    """What the target answers to ``PROMPTS``."""
    return [tiny.greedy(model, prompt, 30) for prompt in PROMPTS]


@pytest.mark.parametrize("runtime", tiny.RUNTIMES)
@pytest.mark.parametrize("setting", ["chain", "tree", "rescored chain", "rescored tree, confident"])
def test_greedy_output_is_that_of_transformers(model, heads, rescorer, setting, runtime):
    pool = pool_of(model, heads[0], rescorer, runtime=runtime, **SETTINGS[setting])
    rounds = check_greedy(pool, PROMPTS, "fixed:heads", 16, (1, 4)) + check_greedy(pool, PROMPTS, "normal-hedge", 16)
    assert any(r.accepted for r in rounds) and any(r.accepted < len(r.drafted) for r in rounds)


@pytest.fixture(scope="module")
def exact(model):
    """Probability of each output of three tokens after ``PROMPTS[1]``."""
    params = SamplingParams(3, temperature=2.0, top_k=6, draft_length=3)
    return params, exact_outputs(model, PROMPTS[1], params)


@pytest.mark.parametrize("setting", ["chain", "tree", "rescored chain", "rescored tree"])
def test_sampled_output_is_distributed_as_the_targets(model, heads, rescorer, exact, setting):
    params, expected = exact
    pool, counts, accepted = pool_of(model, heads[0], rescorer, **SETTINGS[setting]), Counter(), 0
    for seed in range(200):
        out = generate(pool, PROMPTS[1], "fixed:heads", params, seed)
        accepted += sum(r.accepted for r in out.rounds)
        counts[tuple(out.token_ids)] += 1
    assert accepted
    assert p_value(counts, expected) > ALPHA
