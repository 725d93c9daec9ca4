"""The check of finished greedy outputs."""

import pytest

from drafters.sampling import SamplingParams
from multidraft.engine import lossless
from multidraft.engine.decoding import generate
from multidraft.engine.lossless import Difference, greedy_differences
from tests import tiny

PROMPT = tiny.texts(1, 4, 8)[0]


@pytest.mark.parametrize("chunk", [1, 3, 64])
@pytest.mark.parametrize("policy", ["autoregressive", "ucb", "normal-hedge"])
def test_greedy_outputs_pass(pool, monkeypatch, policy, chunk):
    monkeypatch.setattr(lossless, "CHUNK", chunk)
    out = generate(pool, PROMPT, policy, SamplingParams(40, draft_length=4))
    assert greedy_differences(pool, pool.encode(PROMPT), out.token_ids) == []


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_each_foreign_token_is_found_with_its_gap(pool, monkeypatch, chunk):
    """Tokens exchanged at some places: there the logits' gap, everywhere else what follows them is judged as it is."""
    monkeypatch.setattr(lossless, "CHUNK", chunk)
    prompt = pool.encode(PROMPT)
    tokens = generate(pool, PROMPT, "autoregressive", SamplingParams(12)).token_ids
    for place in (0, 5, 11):
        tokens[place] = (tokens[place] + 1) % 10 + 1
    logits = tiny.logits_of(pool.target.model, [*prompt, *tokens])[len(prompt) - 1 : -1]
    expected = [
        (i, float(row.max() - row[token]))
        for i, (row, token) in enumerate(zip(logits, tokens))
        if int(row.argmax()) != token
    ]
    found = greedy_differences(pool, prompt, tokens)
    assert [d.position for d in found] == [i for i, _ in expected] and {0, 5, 11} <= {d.position for d in found}
    assert [d.gap for d in found] == pytest.approx([gap for _, gap in expected], abs=1e-4)
    assert not any(d.rounding for d in found)


@pytest.mark.parametrize("dtype", ["float32", "float32, nf4 weights"])
def test_a_gap_is_a_fault_beyond_the_rounding_of_the_type_that_the_target_computes_in(pool, monkeypatch, dtype):
    monkeypatch.setattr(pool, "dtype", dtype)
    tokens = generate(pool, PROMPT, "autoregressive", SamplingParams(4)).token_ids
    tokens[-1] = tokens[-1] % 10 + 1
    (found,) = greedy_differences(pool, pool.encode(PROMPT), tokens)
    assert not found.rounding
    monkeypatch.setitem(lossless.ROUNDING, "float32", 1e9)
    assert greedy_differences(pool, pool.encode(PROMPT), tokens) == [Difference(3, found.gap, True)]
