"""Warm starts: every policy that learns can begin with a guess instead of nothing."""

import gc

import numpy as np
import pytest

from drafters.sampling import SamplingParams
from drafters.traffic import Prior
from multidraft import PolicyError, acceptance_table, generate, make_policy, replay, stream
from multidraft.engine.decoding import Decoding
from multidraft.engine.experience import Experience
from multidraft.policies import NO_DRAFTER, POLICIES, Context, Feedback, settings_of
from tests import tiny
from tests.engine_cases import pool_of

GUESS = [0.1, 0.2, 0.9, 0.3]
LEARNERS = sorted(name for name, kind in POLICIES.items() if "start" in settings_of(kind))
OTHERS = {"autoregressive", "draft-all", "fixed", "oracle", "random", "round-robin", "router", "ucb-length"}


def test_which_policies_take_a_start():
    assert set(LEARNERS) == set(POLICIES) - OTHERS


def begun(spec, guess=GUESS, seed=0):
    policy = make_policy(spec, len(guess), seed)
    prior = Prior(tuple(guess), (0.1,) * len(guess), 5)
    policy.begin(Context("prompt", 6, route=lambda prompt: guess, previous=guess, prior=prior))
    return policy


def share_of_best(spec, seeds=400):
    """How often the first choice is the guess's favourite, over seeds."""
    return np.mean([begun(spec, seed=seed).select() == 2 for seed in range(seeds)])


@pytest.mark.parametrize("start", ["router", "previous", "traffic"])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_warm_start_prefers_the_favourite(name, start):
    cold, warm = share_of_best(f"{name}:start=cold"), share_of_best(f"{name}:start={start}")
    if name in ("ucb", "ucbspec", "d-ucb", "sw-ucb", "kl-ucb", "sh", "rate-hedge", "normal-hedge"):
        assert warm == 1.0 > cold
    elif name == "petc":  # the guess is one turn of several in its first phase
        assert begun(f"petc:start={start}").sums == pytest.approx(begun_values(start))
    else:
        assert warm > cold


def begun_values(start):
    return [0.35 + 0.45 * value for value in GUESS] if start == "router" else GUESS


@pytest.mark.parametrize("name", LEARNERS)
def test_an_even_guess_prefers_nobody(name):
    policy = begun(f"{name}:start=previous", [0.5] * 4)
    chances = policy.probabilities()
    assert chances is None or chances == pytest.approx([0.25] * 4)


@pytest.mark.parametrize("name", LEARNERS)
def test_without_a_guess_a_warm_start_is_a_cold_one(name):
    warm, cold = make_policy(f"{name}:start=previous", 4, 3), make_policy(f"{name}:start=cold", 4, 3)
    warm.begin(Context("p"))
    cold.begin(Context("p"))
    assert [warm.select() for _ in range(5)] == [cold.select() for _ in range(5)]


@pytest.mark.parametrize("name", LEARNERS)
def test_without_lessons_the_traffic_starts_as_the_router_does(name):
    traffic, router = make_policy(f"{name}:start=traffic", 4, 3), make_policy(f"{name}:start=router", 4, 3)
    for policy in (traffic, router):
        policy.begin(Context("p", route=lambda prompt: GUESS))
    assert [traffic.select() for _ in range(5)] == [router.select() for _ in range(5)]


@pytest.mark.parametrize("name", sorted(OTHERS - {"fixed"}))
def test_policies_that_do_not_learn_take_no_start(name):
    with pytest.raises(PolicyError, match="there is no setting 'start'"):
        make_policy(f"{name}:start=router", 4)


def feedback(arm, accepted=0, drafted=4, gamma=None):
    return Feedback(arm, drafted, accepted, accepted + 1, drafted, gamma=gamma)


def test_experience_of_bandits_is_their_mean_reward():
    known = Experience("abc")
    assert known.means() is None
    for arm, reward in ((0, 0.5), (0, 1.0), (2, 0.25)):
        known.add(feedback(arm), reward)
    known.add(feedback(NO_DRAFTER, drafted=0), None)
    assert known.means() == [0.75, 0.5, 0.25]
    known.before = [0.1, 0.2, 0.3]
    assert known.means() == [0.75, 0.2, 0.25]
    assert Experience("abc", [0.1, 0.2, 0.3]).means() == [0.1, 0.2, 0.3]


def test_experience_of_full_information_is_acceptance_by_token():
    known = Experience("abc", by_token=True)
    known.add(feedback(0, accepted=2), 0.5)  # three tokens were judged: two accepted, the third refused
    assert known.means() == pytest.approx([2 / 3] * 3)
    known.add(feedback(1, accepted=4, gamma=np.array([[[1.0, 0.0, 0.5]], [[0.0, 0.0, 1.0]]])), 1.0)
    assert known.means() == pytest.approx([3 / 5, 4 / 6, 1.5 / 2])


@pytest.mark.parametrize(
    "spec", ["ucb:reward=be,start=router", "normal-hedge:start=router", "rate-hedge", "exp3spec:start=router"]
)
def test_replays_of_warm_starts_are_the_live_rounds(spec):
    pool = pool_of(tiny.llama(1))
    pool.route = lambda prompt: [0.2, 0.7, 0.1]
    pool.router = object()
    params = SamplingParams(max_new_tokens=40, draft_length=4)
    prompt = tiny.prompts(1, seed=4)[0]
    live = generate(pool, prompt, spec, params, seed=5)
    table = acceptance_table(pool, prompt, live.token_ids, 4)
    costs = pool.costs if spec == "rate-hedge" else None
    played = replay(table, spec, 5, draft_length=4, max_new_tokens=40, route=pool.route)
    if costs is None:
        assert played.arms == [NO_DRAFTER if r.arm is None else r.arm for r in live.rounds]
    else:  # it looks at the clock: only where it begins is certain
        assert played.arms[0] == live.rounds[0].arm == 1


def test_experience_is_kept_of_finished_queries_only():
    pool = pool_of(tiny.llama(1))
    params = SamplingParams(max_new_tokens=24, draft_length=3)
    dropped = stream(pool, [3, 1, 4], "ucb:start=previous", params)
    next(dropped)
    del dropped
    gc.collect()
    assert not pool.previous
    waiting = Decoding(pool, [3, 1, 4], "ucb:start=previous", params)
    generate(pool, [2, 7], "ucb:start=previous", params)
    waiting.run()  # made before, begun after: it knows what the other left
    assert waiting.generation.rounds[0].arm == int(np.argmax(waiting.policy.context.previous))


def test_a_query_leaves_its_experience_to_the_next_one_under_the_same_policy():
    pool = pool_of(tiny.llama(1))
    params = SamplingParams(max_new_tokens=24, draft_length=3)
    first = generate(pool, [3, 1, 4], "ucb:start=previous", params)
    assert pool.previous.keys() == {"ucb:start=previous"}
    known = pool.previous["ucb:start=previous"]
    second = generate(pool, [3, 1, 4], "ucb:start=previous", params)
    assert [r.arm for r in first.rounds[:3]] == [0, 1, 2]
    assert second.rounds[0].arm == known.index(max(known))
    assert second.token_ids == first.token_ids
