"""Pools, drafters and policies that the tests of the engine share."""

import numpy as np
import pytest
import torch

from drafters.base import Drafter, Evidence
from drafters.card import Card
from drafters.kinds.lm import make_lm_drafters
from drafters.kinds.pld import PromptLookup
from drafters.models.target import Target
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from multidraft.replay.regret import acceptance_table
from multidraft.replay.walk import replay
from tests import tiny

POLICIES = [
    "autoregressive",
    "fixed:near",
    "fixed:alone",
    "fixed:lookup",
    "random",
    "round-robin",
    "ucb",
    "ucb:reward=be",
    "ucbspec",
    "exp3",
    "exp3spec",
    "sh",
    "petc",
    "d-ucb",
    "sw-ucb",
    "thompson",
    "kl-ucb",
    "hedge",
    "ada-normal-hedge",
    "draft-all",
    "ucb-length",
    "rate-hedge",
    "normal-hedge",
    "normal-hedge:game=chunk",
    "normal-hedge:loss=hybrid,warmup=2,every=3",
]
SAMPLED = SamplingParams(40, temperature=1.0, top_k=8, draft_length=4)
GREEDY = SamplingParams(40, draft_length=4)
LONG = tiny.prompts(1, seed=5, shortest=20)[0]


def pool_of(model, runtime=None):
    """A pool around ``model``, run in one of ``tiny.RUNTIMES``, with two noisy copies of itself and prompt lookup."""
    near, far = (tiny.blend(type(model)(model.config), model, 0.0) for _ in range(2))
    for copy, noise, seed in ((near, 0.05, 5), (far, 0.3, 6)):
        tiny.blend(tiny.spread(copy, seed), model, noise)
    target = Target(model, tiny.RUNTIMES[runtime](model) if runtime else None)
    drafters = [*make_lm_drafters({"near": near, "alone": far}, target.vocab_size), PromptLookup("lookup")]
    card = Card.model_validate(
        {"name": "tiny", "title": "", "target": {"path": "."}, "drafters": [{"name": "lookup", "kind": "pld"}]}
    )
    return Pool(target, drafters, tiny.tokenizer(), card)


def draft_of(drafter, context, length=5):
    return drafter.propose(context, length, GREEDY, torch.Generator())


def paths_of(draft):
    """By node the tokens that lead to it, its own last."""
    paths = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths


def check_greedy(pool, prompts, policy, tokens, lengths=(4,)):
    """Outputs are those of transformers, whatever length drafts have; the rounds of all."""
    rounds = []
    for prompt in prompts:
        ids = pool.encode(prompt) if isinstance(prompt, str) else prompt
        for length in lengths:
            out = generate(pool, prompt, policy, SamplingParams(tokens, draft_length=length))
            assert out.token_ids == tiny.greedy(pool.target.model, ids, tokens)
            rounds += out.rounds
    return rounds


def check_window_end(pool, policy, length, prompt=LONG):
    """Drafts that would go beyond the context window are cut there."""
    out = generate(pool, prompt, policy, SamplingParams(tiny.WINDOW, draft_length=length))
    expected = tiny.greedy(pool.target.model, prompt, tiny.WINDOW - len(prompt))
    assert out.status == "context_limit" and out.token_ids == expected


def check_judgements(drafter, drafts, context, start, vocab, length=4):
    """γ of first tokens, in greedy and in sampled runs, and acceptances are those of the drafts that were really made
    at each position from ``start`` on."""
    firsts = [[draft.tokens[child] for child in draft.children(-1)] for draft in drafts]
    hits = [float(token in tokens) for token, tokens in zip(context[start:], firsts, strict=True)]
    for _ in range(2):  # from what is read first, and from what was noted then
        evidence = Evidence(context, start, None, SamplingParams(draft_length=length))
        assert drafter.gamma(evidence)[:, 0].tolist() == hits
    p = torch.softmax(torch.randn(len(drafts), vocab, generator=torch.Generator().manual_seed(0)), dim=-1)
    soft = [float(row[tokens].sum()) for row, tokens in zip(p, firsts, strict=True)]
    evidence = Evidence(context, start, p, SamplingParams(temperature=1.0, draft_length=length))
    assert drafter.gamma(evidence)[:, 0] == pytest.approx(soft, abs=1e-6)
    accepted = []
    for position, draft in enumerate(drafts, start):
        held = (path for path in paths_of(draft) if list(path) == context[position : position + len(path)])
        accepted.append(max(map(len, held), default=0))
    found = drafter.acceptances(context, start, length).accepted
    assert found.dtype == np.int64 and found.tolist() == accepted


def played_and_replayed(pool, prompt, spec, params=GREEDY, seed=0, tables=None):
    """A run, its replay, and the table of its text that this is made from; ``tables`` keeps those of texts for the
    next policy that writes them."""
    live = generate(pool, prompt, spec, params, seed)
    ids = pool.encode(prompt) if isinstance(prompt, str) else prompt
    text, tables = (*ids, *live.token_ids), {} if tables is None else tables
    if text not in tables:
        tables[text] = acceptance_table(pool, ids, live.token_ids, params.draft_length)
    table = tables[text]
    names = [drafter.name for drafter in pool.drafters]
    again = replay(table, spec, seed, draft_length=params.draft_length, drafters=names, prompt=live.prompt)
    return live, again, table


def check_replayed_trees(pool, prompt, spec, params=GREEDY, tables=None):
    """Replayed rounds are the live ones, up to those that the end cuts: there a tree spends its nodes otherwise."""
    live, again, table = played_and_replayed(pool, prompt, spec, params, tables=tables)
    whole = sum(r.draft_length == params.draft_length for r in live.rounds)
    assert whole > 2 and again.arms[:whole] == [r.arm for r in live.rounds[:whole]]
    assert again.emitted[:whole] == [r.emitted for r in live.rounds[:whole]]
    return live, table


class Scripted(Drafter):
    """Proposes what it is told to."""

    kind = "scripted"

    def __init__(self, name, draft_of):
        self.name, self.draft_of = name, draft_of

    def prepare(self, context):
        pass

    def propose(self, context, length, params, generator, *, with_q=False):
        return self.draft_of(list(context), length)

    def gamma(self, evidence):
        raise NotImplementedError

    def acceptances(self, context, start, length):
        raise NotImplementedError


def with_drafter(pool, draft_of):
    """The pool's target with one scripted drafter."""
    return Pool(pool.target, [Scripted("scripted", draft_of)], pool.tokenizer, pool.card)
