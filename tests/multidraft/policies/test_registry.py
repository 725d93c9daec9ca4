"""The registry: what a visitor of the interface or the command line can pick from."""

import numpy as np
import pytest

from drafters.errors import PolicyError
from multidraft.policies import (
    ALL_DRAFTERS,
    NO_DRAFTER,
    POLICIES,
    Feedback,
    Policy,
    PolicySettings,
    canonical_spec,
    make_policy,
    parse_spec,
    policy_names,
    register,
)
from multidraft.policies.specs import check_specs, stand_ins, start_of, starts_of, with_setting, with_start
from multidraft.policies.titles import policy_title
from multidraft.policies.ucb import UCB
from tests.multidraft.policies.test_ucb import play

BANDITS = ["ucb", "ucbspec", "exp3", "exp3spec", "sh", "petc", "d-ucb", "sw-ucb", "thompson", "kl-ucb"]
FULL_INFORMATION = ["hedge", "normal-hedge", "ada-normal-hedge", "rate-hedge"]
OTHERS = ["autoregressive", "fixed", "random", "round-robin", "draft-all", "router", "oracle", "ucb-length"]
EXPECTED = [*OTHERS, *BANDITS, *FULL_INFORMATION]


def test_every_policy_of_the_house_is_registered():
    assert set(EXPECTED) <= set(policy_names())


@pytest.mark.parametrize("name", EXPECTED)
def test_every_policy_introduces_itself(name):
    kind = POLICIES[name]
    assert kind.name == name
    assert kind.title and kind.source
    assert kind.explanation.endswith(".") and "\n" not in kind.explanation and len(kind.explanation) > 100


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("arms", [1, 2, 5])
def test_every_policy_plays_any_number_of_arms(name, arms):
    policy = make_policy("fixed:arm0" if name == "fixed" else name, arms)
    for _ in range(20):
        arm = policy.select()
        allowed = {"autoregressive": [NO_DRAFTER], "draft-all": [ALL_DRAFTERS]}.get(name, range(arms))
        assert arm in allowed or (arm == NO_DRAFTER and name in ("ucb-length", "rate-hedge"))
        policy.update(Feedback(arm, drafted=4, accepted=2, emitted=3, draft_length=4, block_divergence=0.5))


@pytest.mark.parametrize("name", BANDITS)
def test_a_round_without_a_drafter_teaches_a_bandit_nothing(name):
    policy, untouched = make_policy(name, 3), make_policy(name, 3)
    policy.update(Feedback(NO_DRAFTER, drafted=0, accepted=0, emitted=1, draft_length=0))
    assert policy.last_reward is None
    for _ in range(10):
        arm = policy.select()
        assert arm == untouched.select()
        for each in (policy, untouched):
            each.update(Feedback(arm, drafted=4, accepted=arm, emitted=arm + 1, draft_length=4, block_divergence=0.3))


@pytest.mark.parametrize("name", BANDITS)
def test_nothing_to_propose_is_a_pull_of_reward_zero(name):
    policy = make_policy(name, 2)
    policy.update(Feedback(0, drafted=0, accepted=0, emitted=1, draft_length=4))
    assert (policy.t, policy.last_reward) == (1, 0.0)


@pytest.mark.parametrize("name", BANDITS)
def test_a_bandit_finds_the_best_arm(name):
    policy = make_policy("exp3:gamma=0.1" if name == "exp3" else name, 4, seed=2)
    arms = play(policy, [0.2, 0.3, 0.9, 0.4], 3000, np.random.default_rng(1))
    assert arms[-500:].count(2) > 400


@pytest.mark.parametrize("name", BANDITS)
def test_the_seed_decides_and_a_query_forgets_the_one_before(name):
    def played(policy):
        return play(policy, [0.2, 0.8, 0.5], 60, np.random.default_rng(0))

    policy = make_policy(name, 3, seed=4)
    first = played(policy)
    assert first == played(make_policy(name, 3, seed=4))
    assert (first != played(make_policy(name, 3, seed=5))) == (name in ("exp3", "exp3spec", "thompson"))
    policy.begin()
    assert policy.last_reward is None and played(policy) == first


def test_spec_parsing():
    assert parse_spec("ucb") == ("ucb", {})
    assert parse_spec(" UCB: beta = 0.1 , reward=be") == ("ucb", {"beta": "0.1", "reward": "be"})
    assert parse_spec("fixed:math") == ("fixed", {"": "math"})


@pytest.mark.parametrize(
    ("typed", "spelling"),
    [
        ("UCB", "ucb"),
        (" ucb: ", "ucb"),
        ("ucb:beta=0.10, reward=be", "ucb:reward=be,beta=0.1"),
        ("ucb:reward=bd,beta=1e-2", "ucb"),
        ("ucb:beta=0.123456789", "ucb:beta=0.123456789"),
        ("rate-hedge:start=traffic", "rate-hedge"),
        ("rate-hedge:START", None),
        ("normal-hedge:every=12,warmup=7,start=previous", "normal-hedge:warmup=7,start=previous"),
        ("Fixed:drafter=Arm1", "fixed:Arm1"),
        ("fixed:arm1", "fixed:arm1"),
        ("fixed", "fixed"),
        ("sw-ucb:window=1000000", "sw-ucb:window=1000000"),
        ("ucb:beta=1e-6", "ucb:beta=1e-06"),
        ("ucb:beta=-0", "ucb:beta=0"),
        ("normal-hedge:loss=length,game=chunk,gamma=soft", "normal-hedge:loss=length,game=chunk,gamma=soft"),
        ("d-ucb:beta=0.5,gamma=0.9", "d-ucb:gamma=0.9,beta=0.5"),
        ("exp3:0.3,reward=be", "exp3:gamma=0.3,reward=be"),
        ("ucb:beta=1e6", None),
        ("nonsense", None),
        ("ucb:beta=wide", None),
    ],
)
def test_a_spec_has_one_spelling(typed, spelling):
    if spelling is None:
        with pytest.raises(PolicyError):
            canonical_spec(typed)
    else:
        assert canonical_spec(typed) == spelling == canonical_spec(spelling)


def test_a_setting_is_replaced_in_a_spec():
    assert with_setting("ucb:reward=be,beta=1", "beta", 0.05) == "ucb:reward=be,beta=0.05"
    assert with_setting("ucb", "beta", 1e-05) == "ucb:beta=1e-05"
    assert with_setting("sw-ucb", "window", 30) == "sw-ucb:window=30"
    assert with_setting("ucb-length:good", "beta", 0.1) == "ucb-length:drafter=good,beta=0.1"
    for setting, value in (("window", 3), ("beta", -1.0)):
        with pytest.raises(PolicyError, match=f"policy 'ucb': .*{setting}"):
            with_setting("ucb", setting, value)


def test_names_that_nobody_knows_are_shown_as_they_are():
    """As histories may hold them: of other engines' results."""
    for spec in ("vicuna-7b: eagle, tree", "vllm:tp=1,tp=2"):
        assert policy_title(spec) == spec and parse_spec(spec)[0] == spec.partition(":")[0]


def test_settings_of_policies_by_others_keep_their_names(monkeypatch):
    class Pair(Policy):
        class Settings(PolicySettings):
            first: str = ""
            second: str
            third: str

        def reset(self):
            self.pair = [self.arm_of(self.settings.second), self.arm_of(self.settings.third)]

    Pair.name = "pair"
    monkeypatch.setitem(POLICIES, "pair", Pair)
    spec = "pair:second=math,third=code"
    assert canonical_spec(spec) == spec
    check_specs([spec])  # whatever drafters it names: the pool is not known yet
    with pytest.raises(PolicyError, match="there is no drafter 'code'; choose one of: math, sql"):
        make_policy(spec, ["math", "sql"])
    with pytest.raises(PolicyError, match="there is no setting 'fourth'"):  # others are missing, which says less
        canonical_spec("pair:fourth=sql")


def test_specs_are_checked_before_there_is_a_pool(monkeypatch):
    check_specs(["fixed:whoever", "fixed", "ucb"])
    for specs, message in (
        ([], "no policy is chosen"),
        (["oracle"], "for replays"),
        (["ucb", "ucbb"], "unknown"),
        ("ucb", "policies must be a list of specs, such as .*, got 'ucb'"),
    ):
        with pytest.raises(PolicyError, match=message):
            check_specs(specs)
    monkeypatch.setattr(UCB, "reset", lambda policy: 1 / 0)
    with pytest.raises(PolicyError, match="'ucb' raised ZeroDivisionError"):  # it is made, for drafters that stand in
        check_specs(["ucb"])
    assert stand_ins({"first": "math", "second": "", "third": 3}) == ["math", "another"]


def test_the_seed_is_0_unless_it_is_given():
    draws = [make_policy("random", 2, *seed).rng.random() for seed in ((), (0,), (1,))]
    assert draws[0] == draws[1] != draws[2]


def test_the_spelling_means_the_same():
    made, again = (make_policy(s, 3) for s in ("UCB: beta=0.50,reward=be", canonical_spec("UCB: beta=0.50,reward=be")))
    assert made.settings == again.settings == UCB.Settings(beta=0.5, reward="be", start="cold")


def test_settings_reach_the_policy():
    policy = make_policy("ucb:beta=0.5,reward=be", 3)
    assert (policy.settings.beta, policy.settings.reward, policy.uses_block_divergence) == (0.5, "be", False)
    policy = make_policy("normal-hedge:loss=hybrid,warmup=2,every=5", 3)
    assert (policy.settings.loss, policy.settings.warmup, policy.settings.every) == ("hybrid", 2, 5)
    assert make_policy("exp3:gamma=0.25", 3).settings.gamma == 0.25
    assert make_policy("ucbspec:delta=0.5", 3).settings.delta == 0.5


def test_block_divergence_is_measured_only_for_those_who_learn_from_it():
    wanting = {name for name in EXPECTED if name != "fixed" and make_policy(name, 2).uses_block_divergence}
    assert wanting == set(BANDITS) - {"ucbspec", "exp3spec"}


def test_only_full_information_learners_ask_for_gamma():
    assert {name for name in EXPECTED if POLICIES[name].uses_gamma} == set(FULL_INFORMATION)


@pytest.mark.parametrize("name", EXPECTED)
def test_only_drafters_that_may_be_played_read_the_prompt(name):
    policy = make_policy("fixed:arm1" if name == "fixed" else name, 3)
    expected = {
        "autoregressive": [],
        "fixed": [1],
        "router": [0],
        "oracle": [0],
        "ucb-length": [0],
    }.get(name, [0, 1, 2])
    assert list(policy.candidates()) == expected


def test_a_new_policy_is_one_decorated_class():
    try:

        @register
        class Last(Policy):
            name = "last"
            title = explanation = source = "a test"

            def select(self) -> int:
                return self.arm_count - 1

        assert "last" in policy_names()
        assert make_policy("last", 4).select() == 3
    finally:
        POLICIES.pop("last", None)


SOUND = {"name": "sound", "title": "T", "explanation": "E.", "source": "S", "select": lambda policy: 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({name: None}, f"policy Made needs the class attribute '{name}', a text") for name in list(SOUND)[:4]),
        ({"name": "MyUCB"}, "policy Made: the name 'MyUCB' must consist of lower-case letters, digits and hyphens"),
        ({"name": "a:b,c"}, "policy Made: the name 'a:b,c' must consist of lower-case letters, digits and hyphens"),
        ({"Settings": dict}, "policy Made: its Settings must be a class derived from PolicySettings"),
        ({"select": Policy.select}, "policy Made needs a method select(self), which chooses the arm of the next round"),
        ({"draft_length": 4}, "policy Made: define draft_length as a method draft_length(self, limit)"),
        (
            {"wants_evaluation": lambda policy: True},
            "policy Made: define wants_evaluation as a method wants_evaluation(self, emitted)",
        ),
    ],
)
def test_what_cannot_be_registered(change, message):
    with pytest.raises(PolicyError) as caught:
        register(type("Made", (Policy,), {**SOUND, **change}))
    assert str(caught.value) == message and "sound" not in POLICIES


@pytest.mark.parametrize(
    ("kind", "default", "said"),
    [
        (bool, False, "'greedy' must be an int, a float, a str or a Literal of texts, so that a spec can give it"),
        (list[int], [1], "'greedy' must be an int, a float, a str or a Literal of texts, so that a spec can give it"),
        (int | None, None, "'greedy' must be an int, a float, a str or a Literal of texts, so that a spec can give it"),
        (float, None, "'greedy' needs a default other than None, or none at all"),
    ],
)
def test_settings_are_what_specs_and_forms_can_hold(kind, default, said):
    """``None`` would stand for a setting that must be given."""
    settings = type("Settings", (PolicySettings,), {"__annotations__": {"greedy": kind}, "greedy": default})
    with pytest.raises(PolicyError, match=f"^policy Made: the setting {said}$"):
        register(type("Made", (Policy,), {**SOUND, "Settings": settings}))


def test_what_is_no_policy_cannot_be_registered():
    with pytest.raises(PolicyError, match="Made is registered as a policy, but is not derived from Policy"):
        register(type("Made", (), SOUND))


@pytest.mark.parametrize(
    ("spec", "cold", "router"),
    [
        ("ucb", "ucb", "ucb:start=router"),
        ("ucb:beta=0.1,start=previous", "ucb:beta=0.1", "ucb:beta=0.1,start=router"),
        ("normal-hedge:every=5", "normal-hedge:every=5,start=cold", "normal-hedge:every=5,start=router"),
        ("rate-hedge:start=traffic", "rate-hedge:start=cold", "rate-hedge:start=router"),
        ("fixed:math", "fixed:math", "fixed:math"),
        ("Autoregressive", "autoregressive", "autoregressive"),
    ],
)
def test_any_policy_can_be_given_a_start(spec, cold, router):
    assert (with_start(spec, "cold"), with_start(spec, "router")) == (cold, router)


def test_specs_by_their_start_without_those_that_take_none():
    specs = ["ucb", "fixed:math", "normal-hedge", "ucb:start=router", "autoregressive", "no-such-policy"]
    assert starts_of(specs) == {"cold": ["ucb"], "traffic": ["normal-hedge"], "router": ["ucb:start=router"]}


def test_what_a_query_begins_with():
    starts = {"ucb": "cold", "ucb:start=previous": "previous", "normal-hedge": "traffic", "fixed:math": "cold"}
    assert {spec: start_of(spec) for spec in starts} == starts
