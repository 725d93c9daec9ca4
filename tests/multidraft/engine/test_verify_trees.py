"""Verification of arbitrary trees against brute force: every path, and every draw that could be made."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import multidraft.engine.verify as verify_module
from drafters.draft import Draft
from drafters.sampling import SamplingParams, probabilities
from multidraft.engine.verify import verify

V = 3
GREEDY = SamplingParams()
SAMPLED = {
    "plain": SamplingParams(temperature=1.0),
    "top-k": SamplingParams(temperature=0.8, top_k=2),
    "top-p": SamplingParams(temperature=1.4, top_p=0.7),
}


@st.composite
def trees(draw, most=12, *, twins=False):
    """Any tree, in any order in which parents stand before their children.

    Args:
        twins: siblings may be equal, which no drafter of ours proposes.
    """
    tokens, parents = [], []
    for node in range(draw(st.integers(0, most))):
        parent = draw(st.integers(-1, node - 1))
        taken = [token for token, above in zip(tokens, parents) if above == parent and not twins]
        if len(taken) < V:
            tokens.append(draw(st.sampled_from([token for token in range(V) if token not in taken])))
            parents.append(parent)
            continue
        break
    return Draft(tuple(tokens), tuple(parents))


def nodes_to(draft, node):
    """The nodes from the root to ``node``; none for -1."""
    return (*nodes_to(draft, draft.parents[node]), node) if node >= 0 else ()


def text_of(draft, node):
    return tuple(draft.tokens[n] for n in nodes_to(draft, node))


def logits_after(text, seed):
    """A target: logits that depend on the whole text, and on nothing else."""
    number = sum((token + 1) * (V + 1) ** place for place, token in enumerate(text))
    return 2.0 * torch.randn(V, generator=torch.Generator().manual_seed(1000 * number + seed))


def score(draft, seed):
    return torch.stack([logits_after(text_of(draft, node), seed) for node in range(-1, len(draft))])


@given(draft=trees(), seed=st.integers(0, 99))
def test_the_longest_path_that_the_target_would_write_is_accepted(draft, seed):
    written = ()
    while len(written) <= draft.depth:
        written = (*written, int(logits_after(written, seed).argmax()))
    valid = [n for n in range(-1, len(draft)) if text_of(draft, n) == written[: len(text_of(draft, n))]]
    longest = max(valid, key=lambda node: len(nodes_to(draft, node)))
    verdict = verify(draft, score(draft, seed), GREEDY, torch.Generator())
    assert verdict.path == nodes_to(draft, longest)
    assert verdict.own == written[len(verdict.path)]


@given(draft=trees(twins=True), data=st.data())
def test_any_choices_lead_along_the_tree(draft, data):
    """The target's choices at every node drawn too, so that long paths are common and twins are met."""
    choices = data.draw(st.lists(st.integers(0, V - 1), min_size=len(draft) + 1, max_size=len(draft) + 1))
    logits = torch.nn.functional.one_hot(torch.tensor(choices), V).float()
    verdict = verify(draft, logits, GREEDY, torch.Generator())
    last = verdict.path[-1] if verdict.path else -1
    assert verdict.path == nodes_to(draft, last)
    assert all(draft.tokens[node] == choices[draft.parents[node] + 1] for node in verdict.path)
    assert verdict.own == choices[last + 1]
    assert verdict.own not in [draft.tokens[child] for child in draft.children(last)]


def outcomes(draft, logits, params, monkeypatch):
    """All that verification of a deterministic draft may answer, each with its probability: every draw is forced
    to every token in turn."""
    found, waiting = {}, [()]
    while waiting:
        forced, asked = waiting.pop(), []

        class Draws:
            """A token for each row, of which those are told that are asked for."""

            def __init__(self, probs, forced=forced, asked=asked):
                self.probs, self.forced, self.asked = probs, forced, asked

            def __getitem__(self, row):
                p, count = self.probs[row], len(self.asked)
                token = self.forced[count] if count < len(self.forced) else int(p.argmax())
                self.asked.append((p, token))
                return token

        monkeypatch.setattr(verify_module, "_draws", lambda probs, _, kind=Draws: (kind(probs), [1] * len(probs)))
        verdict = verify(draft, logits, params, torch.Generator())
        for place in range(len(forced), len(asked)):
            before = tuple(token for _, token in asked[:place])
            waiting += [(*before, other) for other in range(V) if other != asked[place][1]]
        chance = 1.0
        for p, token in asked:
            chance *= float(p[token])
        assert (verdict.path, verdict.own) not in found  # each draw decides something
        found[verdict.path, verdict.own] = chance
    return found


@pytest.mark.parametrize("params", SAMPLED.values(), ids=SAMPLED.keys())
@given(draft=trees(most=8), seed=st.integers(0, 99))
def test_a_path_of_a_deterministic_tree_is_as_probable_as_its_text(params, draft, seed):
    """Exactly: the target's probabilities along the path, times that of a token of its own that is no child there."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = outcomes(draft, score(draft, seed), params, monkeypatch)
    expected = {}
    for node, own in itertools.product(range(-1, len(draft)), range(V)):
        if own in [draft.tokens[child] for child in draft.children(node)]:
            continue
        text, chance = (*text_of(draft, node), own), 1.0
        for place, token in enumerate(text):
            chance *= float(probabilities(logits_after(text[:place], seed), params)[token])
        expected[nodes_to(draft, node), own] = chance
    assert found == pytest.approx(expected, abs=1e-6)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_a_sibling_is_judged_by_what_is_left_of_both_distributions(seed):
    """The first of two is refused: p = (0, .6, .4) never writes it. What is left of q = (.5, .3, .2) is p itself."""
    q = torch.tensor([0.5, 0.3, 0.2])
    draft = Draft((0, 1), (-1, -1), torch.stack([q, q]), True)
    logits = torch.tensor([[0.0, 0.6, 0.4]] * 3).log()
    generator = torch.Generator().manual_seed(seed)
    assert verify(draft, logits, SAMPLED["plain"], generator).path == (1,)
