"""What the papers prove, seen in replays of stationary instances: loose bounds on means over seeds, seeds fixed."""

import numpy as np
import pytest

from multidraft.bench.simulate import draw_table
from multidraft.replay.walk import replay

K, SEEDS = 6, 4


def mean_regret(spec, gamma, tokens):
    """Mean stopping-time regret, in rounds, of responses of ``tokens`` tokens."""
    regrets = []
    for seed in range(SEEDS):
        rng = np.random.default_rng((seed, tokens, len(gamma)))
        table = draw_table(np.repeat(np.array(gamma)[:, None], tokens, axis=1), K, rng)
        regrets.append(replay(table, spec, seed, draft_length=K).regret)
    return float(np.mean(regrets))


GAP = [0.85, 0.5, 0.4, 0.3]


@pytest.mark.parametrize("spec", ["ucb:reward=be,beta=0.5", "ucbspec"])
def test_upper_confidence_regret_grows_like_a_logarithm(spec):
    """MetaSD Thm 2, BanditSpec Thm 4.3: four times the tokens add about as much regret each time, not four times it."""
    first, second, third = (mean_regret(spec, GAP, tokens) for tokens in (500, 2000, 8000))
    assert 0 < first < second < third
    assert third - second < 2.0 * (second - first) + 5  # linear growth would make it 4 times as much
    assert third < 0.1 * 8000 / (1 + K)


@pytest.mark.parametrize("spec", ["normal-hedge:every=1", "ada-normal-hedge:every=1", "hedge:every=1"])
def test_full_information_regret_stays_flat(spec):
    """HedgeSpec Thm 4 and App. B.2: with a gap it is bounded however long the text."""
    short, long = mean_regret(spec, GAP, 500), mean_regret(spec, GAP, 8000)
    assert long < short + 5 and long < 15


def test_in_the_number_of_drafters_bandits_pay_linearly_and_hedge_hardly():
    """HedgeSpec §3.4 (√ln N) against the N of bandits, who have to try each drafter."""
    few, many = ([0.85] + [0.5] * (n - 1) for n in (4, 32))
    bandit = [mean_regret("ucb:reward=be,beta=0.5", gamma, 2500) for gamma in (few, many)]
    hedge = [mean_regret("normal-hedge:every=1", gamma, 2500) for gamma in (few, many)]
    assert bandit[1] > 4 * bandit[0]
    assert hedge[1] < 4 * max(hedge[0], 2) and hedge[1] < bandit[1] / 4
