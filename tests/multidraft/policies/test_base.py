"""The interface: what a policy is and is told unless it says otherwise."""

import pytest

from drafters.errors import PolicyError
from multidraft.policies import (
    POLICIES,
    Context,
    Feedback,
    Policy,
    PolicySettings,
    WarmStart,
    make_policy,
    policy_names,
)


class Noting(Policy):
    """Keeps what it is told."""

    name = "noting"

    class Settings(WarmStart):
        pass

    def reset(self):
        self.told = []

    def update(self, feedback):
        self.t += 1
        self.told.append(feedback)


GUESS = [0.0, 1.0, 0.4]


def begun(start, **known):
    policy = Noting(["a", "b", "c"], start=start)
    policy.begin(Context(draft_length=10, **known))
    return policy


def test_a_policy_that_says_nothing_of_itself_needs_nothing():
    policy = Policy(["a", "b", "c"])
    assert type(policy.settings) is PolicySettings
    for need in ("uses_block_divergence", "uses_gamma", "uses_soft_gamma", "uses_costs", "needs_route"):
        assert getattr(policy, need) is False, need
    assert policy.live and policy.tree_nodes == 128 and policy.seed == policy.t == 0
    assert (policy.last_reward, policy.probabilities(), policy.evaluation_span) == (None, None, None)
    assert policy.wants_evaluation(3) is False
    assert policy.draft_length(5) == 5 and list(policy.candidates()) == [0, 1, 2] and policy.arm_count == 3
    with pytest.raises(NotImplementedError):
        policy.select()


def test_a_query_of_which_nothing_is_known():
    context = Context()
    assert (context.prompt, context.draft_length, context.suited()) == ("", 8, None)
    assert context.prompt_tokens == 0
    assert Feedback(0, 4, 1, 2, 4).seconds == 0.0


@pytest.mark.parametrize(("accepted", "draft_length", "efficiency"), [(3, 4, 0.75), (1, 2, 0.5), (0, 4, 0), (0, 0, 0)])
def test_block_efficiency_is_the_accepted_share_of_the_draft_asked_for(accepted, draft_length, efficiency):
    assert Feedback(0, 4, accepted, accepted + 1, draft_length).block_efficiency == efficiency


@pytest.mark.parametrize(
    ("start", "known", "values"),
    [
        ("previous", {"previous": GUESS}, GUESS),
        ("router", {"route": lambda prompt: GUESS}, [0.35, 0.8, 0.53]),  # 0.8 if sure it is the one, 0.35 if it is not
        ("router", {"previous": GUESS}, []),
        ("previous", {"route": lambda prompt: GUESS}, []),
        ("router", {"route": lambda prompt: None}, []),
        ("cold", {"previous": GUESS, "route": lambda prompt: GUESS}, []),
    ],
)
def test_a_warm_start_is_a_full_round_of_each_drafter_as_good_as_the_guess(start, known, values):
    policy = begun(start, **known)
    assert [told.arm for told in policy.told] == list(range(len(values)))
    assert [told.block_divergence for told in policy.told] == pytest.approx(values)
    for told, value in zip(policy.told, values):
        accepted = round(10 * value)
        assert (told.drafted, told.accepted, told.emitted, told.draft_length) == (10, accepted, accepted + 1, 10)
    assert policy.last_reward is None


def test_a_query_forgets_the_one_before():
    policy = begun("previous", previous=GUESS)
    first, policy.last_reward = policy.rng.random(), 0.5
    policy.begin()
    assert (policy.t, policy.told, policy.last_reward, policy.context) == (0, [], None, Context())
    assert policy.rng.random() == first
    assert Noting(["a"], seed=1).rng.random() != first


def test_policies_are_named_in_the_order_of_the_alphabet():
    assert policy_names() == sorted(POLICIES)


def test_drafters_have_numbers():
    policy = make_policy("random", ["math", "code"])
    assert (policy.arm_of("code"), policy.arms) == (1, ("math", "code"))
    with pytest.raises(PolicyError, match="there is no drafter 'poems'; choose one of: math, code"):
        policy.arm_of("poems")
