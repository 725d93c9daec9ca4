"""Invalid use: every message names the fault and the way out."""

import tracemalloc

import numpy as np
import pytest

from drafters.errors import PolicyError
from multidraft.policies import POLICIES, Context, Feedback, canonical_spec, make_policy, settings_of


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mine.py", "unknown policy 'mine.py'; name files of policies in MULTIDRAFT_POLICIES, and here a policy"),
        ("nonsense", "unknown policy 'nonsense'; choose one of: ada-normal-hedge, autoregressive, "),
        ("ucbb", r"unknown policy 'ucbb'; did you mean ucb\?$"),
        ("ada", r"unknown policy 'ada'; did you mean ada-normal-hedge\?$"),
        ("ucb:gamma=1", "there is no setting 'gamma'; it takes: reward, beta, start"),
        ("ucb:betta=0.1", r"there is no setting 'betta'; did you mean beta\? it takes: reward, beta, start"),
        ("ucb:beta", "policy 'ucb': the setting 'beta' has no value; it must be a number from 0 to 100"),
        ("ucb:beta,reward=be", "the setting 'beta' has no value"),
        ("sh:start", "the setting 'start' has no value; it must be one of: cold, "),
        ("fixed:drafter", "there is no drafter 'drafter'"),
        ("random:0.5", "there is no setting '0.5'; it takes none"),
        ("ucb:beta=-0.1", "policy 'ucb': beta must be a number from 0 to 100; got '-0.1'"),
        ("ucb:beta=nan", "beta must be a number from 0 to 100"),
        ("ucb:beta=inf", "beta must be a number from 0 to 100"),
        ("ucb:beta=much", "beta must be a number from 0 to 100; got 'much'"),
        ("ucb:reward=speed", "reward must be one of: bd, be; got 'speed'"),
        ("ucb:start=hot", "start must be one of: cold, router, traffic, previous; got 'hot'"),
        ("exp3:gamma=0", "gamma must be a number above 0 and at most 1; got '0'"),
        ("exp3:gamma=1.1", "gamma must be a number above 0 and at most 1; got '1.1'"),
        ("sh:period=0", "period must be a whole number from 1 to 10,000; got '0'"),
        ("sh:period=30000000", "period must be a whole number from 1 to 10,000; got '30000000'"),
        ("sw-ucb:window=2.5", "window must be a whole number"),
        ("rate-hedge:budget=1", "budget must be a number at least 0 and below 1; got '1'"),
        ("normal-hedge:game=chunk,span=8", "span is for game=token: a chunk is judged whole"),
        ("ucb:beta=0.1,beta=0.2", "policy 'ucb': beta is given twice, '0.1' and '0.2'"),
        ("fixed:math,code", "drafter is given twice, 'math' and 'code'"),
        ("fixed:math,drafter=code", "drafter is given twice, 'math' and 'code'"),
        ("fixed", "needs drafter, e.g. fixed:math; drafters: math, code"),
        ("fixed:poems", "there is no drafter 'poems'; choose one of: math, code"),
        ("fixed:Math", "there is no drafter 'Math'"),
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


@pytest.mark.parametrize("arms", ["math", b"ab", None, 1.5, True, [1, 2], ["math", None]])
def test_what_names_no_arms(arms):
    with pytest.raises(PolicyError, match=r"^arms must be a list of the drafters' names, or how many there are, got "):
        make_policy("exp3", arms)


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True, None])
def test_seeds_that_are_none(seed):
    with pytest.raises(PolicyError, match=r"^the seed of a policy must be a whole number from 0 on, got "):
        make_policy("exp3", 2, seed=seed)


def test_counts_and_seeds_of_numpy_are_counts_and_seeds():
    ours, theirs = make_policy("random", 5, seed=3), make_policy("random", np.int32(5), seed=np.int64(3))
    assert ours.arms == theirs.arms and type(theirs.seed) is int
    assert [ours.select() for _ in range(20)] == [theirs.select() for _ in range(20)]


def extremes():
    """Every policy with each of its numbers at each bound, or just inside where the bound itself is not allowed."""
    for name, kind in POLICIES.items():
        for setting in settings_of(kind).values():
            if setting.numeric:
                assert setting.minimum is not None and setting.maximum is not None, f"{name}:{setting.name}"
                for bound in (setting.minimum, setting.maximum):
                    for value in (bound, bound + 1e-9, bound - 1e-9):
                        spec = f"{name}:{setting.name}={value}"
                        try:
                            canonical_spec(spec)
                        except PolicyError:
                            continue
                        yield spec
                        break
                    else:
                        raise AssertionError(f"{name}:{setting.name}: nothing near {bound} is allowed")


@pytest.mark.parametrize("spec", sorted(set(extremes())))
def test_policies_at_the_bounds_of_their_settings_are_small_and_play(spec):
    tracemalloc.start()
    try:
        policy = make_policy(spec, 8)
        policy.begin(Context(draft_length=8, route=lambda prompt: [0.5] * 8))
        for _ in range(50):
            arm = policy.select()
            length = policy.draft_length(8)
            wanted = policy.uses_gamma and policy.wants_evaluation(3)
            gamma = np.full((3, 8, 8), 0.5) if wanted else None
            policy.update(Feedback(arm, length, 2, 3, length, block_divergence=0.5, gamma=gamma, seconds=0.01))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
