"""Trees in sampled runs through the engine: its cache, its rollbacks, and the union of all drafters' drafts."""

from collections import Counter

import pytest

from drafters.models.onnx_decoder import OnnxDecoder
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from tests import kinds
from tests.distributions import ALPHA, exact_outputs, p_value, p_value_of_tokens

PROMPT = "abcabdabcab"
LONG = SamplingParams(40, temperature=1.0, top_k=6, draft_length=4)
MIXED = ("near", "suffix-tree", "rest-tree", "lookahead", "eagle-3-tree", "bpd-tree")


@pytest.fixture(scope="module")
def pool(kinds_card):
    return kinds.part_of(kinds.load(kinds_card), *MIXED)


@pytest.fixture
def paths(pool, monkeypatch):
    """Accepted paths of all rounds."""
    seen, accept = [], pool.target.accept
    monkeypatch.setattr(pool.target, "accept", lambda path, own: (seen.append(tuple(path)), accept(path, own)))
    return seen


def p_value_of(pool, policy, runs):
    outputs = [generate(pool, PROMPT, policy, LONG, seed).token_ids for seed in range(runs)]
    return p_value_of_tokens(pool.target.model, pool.encode(PROMPT), outputs, LONG)


@pytest.mark.parametrize(
    ("policy", "runs"),
    [("fixed:suffix-tree", 16), ("fixed:rest-tree", 16), ("draft-all", 8), ("draft-all:nodes=9", 8)],
)
def test_long_outputs_follow_the_target(pool, paths, policy, runs):
    assert p_value_of(pool, policy, runs) > ALPHA
    assert sum(map(len, paths)) > 5 * runs  # speculation took place,
    assert sum(path != tuple(range(len(path))) for path in paths) > 2 * runs  # in branches beside the first


def test_a_cache_that_keeps_the_wrong_branch_is_found_out(pool, monkeypatch):
    keep = OnnxDecoder.keep
    monkeypatch.setattr(OnnxDecoder, "keep", lambda self, start, kept: keep(self, start, list(range(len(kept)))))
    assert p_value_of(pool, "fixed:rest-tree", 16) < ALPHA


def test_outputs_of_draft_all_follow_the_target(pool, paths):
    params = SamplingParams(3, temperature=1.5, top_k=3, draft_length=2)
    trees = kinds.part_of(pool, "near", "suffix-tree", "rest-tree", "bpd-tree")
    counts = Counter(tuple(generate(trees, PROMPT, "draft-all", params, seed).token_ids) for seed in range(150))
    assert sum(map(len, paths)) > 100
    assert p_value(counts, exact_outputs(pool.target.model, pool.encode(PROMPT), params)) > ALPHA
