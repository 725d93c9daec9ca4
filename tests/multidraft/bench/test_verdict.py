"""The verdict in words: what is certain, what is open, and no star without significance."""

import json

import numpy as np
import pytest

from drafters.errors import UserError
from multidraft.bench.summary import Row
from multidraft.bench.verdict import as_json, of_rows, sentences, tables
from multidraft.replay.advice import Advice, Share
from multidraft.replay.options import Option
from storage.figures import Ratio

NOISE = np.array([0.9, 1.1, 0.95, 1.05, 1.0, 1.02, 0.98, 1.0])


def option(spec, factor, length=6, noise=1.0, prompts=8):
    seconds = 10.0 * factor * (np.ones(prompts) if isinstance(noise, float) else noise)
    tokens = np.full(prompts, 30.0)
    return Option(spec, length, seconds, seconds, tokens, tokens / 3)


PLAIN = option("autoregressive", 1.0, 0)


def test_a_certain_winner_with_what_it_saves_and_needs():
    shares = (
        Share("math", True, 0.31, Ratio(1.12, 1.05, 1.2, 8), 1 << 20),
        Share("code", True, 0.2, Ratio(1.01, 0.97, 1.06, 8)),
        Share("old", False, 0.0, None, 2 << 20),
    )
    options = [option("rate-hedge", 0.5, noise=NOISE), option("fixed:math", 0.8)]
    found = Advice.of(PLAIN, options, shares=shares, removed=(("old",), None), lengths={3: Ratio(0.9, 0.8, 0.95, 8)})
    said = "\n".join(sentences(found))
    assert "For this traffic: `rate-hedge`, draft length up to 6: it saves 67 % of the target's calls" in said
    assert "2.00× (1.9" in said and "on 8 prompts" in said and "50 % less of the device's time" in said
    assert "faster than the other policy, each at the 95 % level: `fixed:math` 1.25×" in said
    assert "Keep `math` (proposes 31 % of the tokens; without it requests take 1.12× (1.05–1.20) as long)." in said
    assert "Remove `old`: under this policy it never drafts; 2.0 MiB of memory are free then." in said
    assert "Not settled by these prompts whether it pays: `code`." in said
    assert "slower at the 95 % level with 3 tokens" in said
    policies, drafters = tables(found)
    assert policies.rows[0][0] == "rate-hedge ★" and drafters.rows[2][-1] == "can go"


def test_what_is_level_has_no_star_and_says_how_many_prompts_would_settle_it():
    options = [option("ucb", 0.5, noise=NOISE), option("fixed:math", 0.505, noise=NOISE[::-1])]
    found = Advice.of(PLAIN, options)
    said = "\n".join(sentences(found))
    assert not found.certain and "★" not in "".join(cell for row in tables(found)[0].rows for cell in row)
    assert "Not significantly slower: `fixed:math` 1.98×." in said
    assert "would settle `ucb` against `fixed:math`" in said or "More than 1,000 prompts" in said
    assert "`fixed:math` needs a single drafter" in said


@pytest.mark.parametrize(
    ("factor", "prompts", "said"),
    [
        (1.25, 8, "Don't speculate on this traffic: the fastest policy, `ucb`"),
        (0.995, 8, "No speed-up is certain on this traffic"),
        (0.5, 2, "Too few prompts for a verdict: 2 prompts, and an interval takes 3."),
    ],
)
def test_where_nothing_can_be_advised(factor, prompts, said):
    plain = option("autoregressive", 1.0, 0, prompts=prompts)
    found = Advice.of(plain, [option("ucb", factor, noise=NOISE[:prompts])])
    first, basis = sentences(found)
    assert said in first and "95 %" in basis


def row(prompt, policy, seconds, status="completed", tokens=16):
    speeds = {"speedup": 2.0 / seconds, "request_speedup": 3.0 / (seconds + 1.0)}
    return Row(str(prompt), "t", policy, status, tokens, 4, seconds, seconds + 1.0, 2.0, 3.0, prompt=prompt, **speeds)


def test_measured_runs_are_compared_on_the_prompts_that_all_policies_ran():
    rows = [row(prompt, "ucb", 1.0) for prompt in range(5)] + [row(prompt, "exp3", 1.6) for prompt in range(4)]
    rows += [row(0, "ucb", 1.0)] * 3 + [row(9, "exp3", 0.1, "cancelled"), row(0, "autoregressive", 2.0)]
    found = of_rows(rows, 6)
    assert found.prompts == 4 and [option.spec for option in found.options] == ["ucb", "exp3"] and found.certain
    assert found.best.times_as_fast(found.plain, "decode").value == pytest.approx(2.0)
    assert found.best.times_as_fast(found.plain).value == pytest.approx(1.5)
    assert "Drafters and draft lengths take the history" in sentences(found)[-1]
    json.dumps(as_json(found), allow_nan=False)


def test_runs_that_cannot_be_compared():
    with pytest.raises(UserError, match="no prompt in common"):
        of_rows([row(1, "ucb", 1.0), row(2, "exp3", 1.0)], 6)
    with pytest.raises(UserError, match="nothing to compare"):
        of_rows([row(1, "autoregressive", 1.0)], 6)
