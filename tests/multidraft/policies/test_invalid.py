"""Invalid use: every message names the fault and the way out."""

import numpy as np
import pytest

from multidraft.errors import PolicyError
from multidraft.policies import Feedback, make_policy


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ucbb", "unknown policy 'ucbb'; choose one of: ada-normal-hedge, autoregressive, "),
        ("ucb:gamma=1", "has no setting 'gamma'; it takes: reward, beta"),
        ("random:0.5", "has no setting '0.5'; it takes none"),
        ("exp3spec:eta=1", "has no setting 'eta'; it takes: start"),
        ("ucb:beta=-0.1", "beta must be 0 or a positive number, got -0.1"),
        ("ucb:beta=nan", "beta must be 0 or a positive number"),
        ("ucb:beta=inf", "beta must be 0 or a positive number"),
        ("ucb:beta=much", "beta must be a number, got 'much'"),
        ("ucb:reward=speed", r"reward must be bd \(block divergence\) or be \(block efficiency\), got 'speed'"),
        ("exp3:reward=speed", "reward must be bd"),
        ("exp3:gamma=0", "gamma must be above 0 and at most 1, got 0.0"),
        ("exp3:gamma=1.1", "gamma must be above 0 and at most 1, got 1.1"),
        ("exp3:gamma=nan", "gamma must be above 0"),
        ("ucbspec:delta=0", "delta must be above 0 and at most 1, got 0.0"),
        ("ucbspec:delta=2", "delta must be above 0 and at most 1, got 2.0"),
        ("sh:period=0", "period must be at least 1 turn, got 0"),
        ("petc:c=0", "c must be a positive number, got 0.0"),
        ("petc:budget=1", "budget must be at least 2 tokens, got 1"),
        ("d-ucb:gamma=0", "gamma must be above 0 and at most 1, got 0.0"),
        ("sw-ucb:window=0", "window must be at least 1 round, got 0"),
        ("kl-ucb:c=-1", "c must be 0 or a positive number, got -1.0"),
        ("thompson:reward=speed", "reward must be bd"),
        ("hedge:game=chess", "game must be one of: token, chunk; got 'chess'"),
        ("normal-hedge:loss=speed", "loss must be one of: length, acceptance, hybrid; got 'speed'"),
        ("normal-hedge:warmup=-1", "warmup must be 0 or a positive number of rounds, got -1"),
        ("normal-hedge:every=0", "every must be at least 1 round, got 0"),
        ("fixed", "needs drafter, e.g. fixed:math; drafters: math, code"),
        ("fixed:poems", "the pool has no drafter 'poems'; choose one of: math, code"),
        ("fixed:Math", "the pool has no drafter 'Math'"),
    ],
)
def test_bad_specs(spec, message):
    with pytest.raises(PolicyError, match=message):
        make_policy(spec, ["math", "code"])


@pytest.mark.parametrize(
    "name", ["fixed:a", "random", "round-robin", "ucb", "ucbspec", "exp3", "exp3spec", "normal-hedge"]
)
def test_an_empty_pool_leaves_only_plain_decoding(name):
    with pytest.raises(PolicyError, match="needs at least one drafter"):
        make_policy(name, 0)
    assert make_policy("autoregressive", 0).select() == -1


@pytest.mark.parametrize("name", ["ucb", "exp3"])
def test_missing_block_divergence_is_not_learnt_as_zero(name):
    policy = make_policy(name, 2)
    with pytest.raises(PolicyError, match="reward=be"):
        policy.update(Feedback(policy.select(), drafted=4, accepted=4, emitted=5, draft_length=4))


def test_gamma_for_another_pool_is_refused():
    policy = make_policy("normal-hedge:loss=acceptance", 3)
    with pytest.raises(ValueError, match=r"\(positions, 3 drafters\), got \(5, 2\)"):
        policy.update(Feedback(0, 4, 4, 5, 4, gamma=np.full((5, 2), 0.5)))


def test_a_broken_drafter_is_named():
    policy = make_policy("normal-hedge", ["math", "code"])
    gamma = np.full((5, 2), 0.5)
    gamma[3, 1] = np.nan
    with pytest.raises(ValueError, match="acceptance probabilities of code are not finite"):
        policy.update(Feedback(0, 4, 4, 5, 4, gamma=gamma))
