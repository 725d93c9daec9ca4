"""Replay equals life: the same arms, lengths and tokens, round by round."""

import math

import numpy as np
import pytest

from drafters.base import Acceptances
from drafters.costs import Costs
from drafters.errors import PolicyError
from drafters.kinds.suffix import SuffixDrafter
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import generate
from multidraft.policies import NO_DRAFTER, make_policy
from multidraft.policies import POLICIES as REGISTERED
from multidraft.replay.regret import acceptance_table, regret_of
from multidraft.replay.walk import best_fixed_rate, replay
from tests import tiny
from tests.engine_cases import played_and_replayed, pool_of
from tests.perf.replay_clock import priced

POLICIES = [
    "fixed:near",
    "fixed:lookup",
    "random",
    "round-robin",
    "autoregressive",
    "ucb:reward=be",
    "exp3:reward=be",
    "ucbspec",
    "exp3spec",
    "sh:reward=be",
    "petc:reward=be",
    "d-ucb:reward=be",
    "sw-ucb:reward=be",
    "thompson:reward=be",
    "kl-ucb:reward=be",
    "draft-all",
    "hedge",
    "ada-normal-hedge",
    "normal-hedge",
    "normal-hedge:every=1",
    "normal-hedge:loss=hybrid,warmup=2,every=3",
    "normal-hedge:game=chunk",
]
BY_CHANCE = [spec for spec in POLICIES if spec.startswith(("random", "exp3", "thompson", "hedge", "ada", "normal"))]
GREEDY = SamplingParams(28, draft_length=4)  # short enough for the window to hold all nodes of draft-all
PROMPTS = tiny.texts(4, 11, 3)


def names_of(pool):
    return [drafter.name for drafter in pool.drafters]


@pytest.fixture(scope="module")
def tables():
    """Acceptance tables of what the pool has written."""
    return {}


@pytest.mark.parametrize(("spec", "seed"), [*((spec, 0) for spec in POLICIES), *((spec, 7) for spec in BY_CHANCE)])
def test_replayed_rounds_are_the_live_ones(pool, tables, spec, seed):
    for prompt in PROMPTS:
        live, played, table = played_and_replayed(pool, prompt, spec, GREEDY, seed, tables)
        assert played.arms == [NO_DRAFTER if r.arm is None else r.arm for r in live.rounds]
        assert played.lengths == [r.draft_length for r in live.rounds]
        assert played.emitted == [r.emitted for r in live.rounds]
        regret = regret_of(live, table)
        assert played.regret == regret.regret_rounds
        assert names_of(pool)[played.best_arms[0]] == regret.best_drafter
        assert played.best_rounds == min(regret.drafter_rounds.values())
        assert played.best_arm_ratio == regret.best_arm_ratio
        assert played.mean_accepted_tokens == live.mean_accepted_tokens


CLOCKS = (
    None,
    Costs.uniform(3, 6, step=0.05, verify=1.0),
    Costs(np.array([0.9, 0.1, 0.5]), np.full(3, 0.4), np.linspace(0.1, 4.0, 7), evaluate=2.0, evaluate_token=0.3),
)
"""Where drafting is for nothing, and where it is dear."""


@pytest.mark.parametrize("name", sorted(REGISTERED))
def test_only_policies_that_say_so_choose_by_costs(name):
    """The rounds of all others are known exactly, whatever the machine."""
    spec = {"fixed": "fixed:arm1"}.get(name, name)
    if make_policy(spec, 3).uses_block_divergence:
        spec += ":reward=be"
    rng = np.random.default_rng(5)
    table = np.stack([np.minimum(rng.geometric(1 - p, 300) - 1, 6) for p in (0.3, 0.6, 0.8)])
    route = (lambda prompt: [0.0, 1.0, 0.0]) if REGISTERED[name].needs_route else None
    played = [replay(table, spec, 1, draft_length=6, costs=costs, route=route) for costs in CLOCKS]
    same = all((p.arms, p.lengths, p.emitted) == (played[0].arms, played[0].lengths, played[0].emitted) for p in played)
    assert same == (not REGISTERED[name].uses_costs)


@pytest.mark.parametrize("spec", ["ucb:reward=be", "normal-hedge", "exp3spec"])
def test_runs_that_end_at_a_stop_token(pool, spec):
    """Their last drafts were cut by the limit, not by the end of the text."""
    params, ended = SamplingParams(60, draft_length=4), 0
    for prompt in tiny.texts(6, 5, 3):
        pool.stop_ids = frozenset(generate(pool, prompt, "autoregressive", params).token_ids[20:21])
        live = generate(pool, prompt, spec, params, 3)
        table = acceptance_table(pool, pool.encode(prompt), live.token_ids, 4)
        room = min(60, tiny.WINDOW - live.prompt_tokens)
        played = replay(table, spec, 3, draft_length=4, max_new_tokens=room, drafters=names_of(pool))
        assert played.emitted == [r.emitted for r in live.rounds]
        assert played.lengths == [r.draft_length for r in live.rounds]
        assert played.accepted == [r.accepted for r in live.rounds]
        ended += live.status == "stopped"
    assert ended


def test_time_by_hand():
    # Two drafters in turn. Unread tokens before each round: 0, 2, 2, 2. The last draft is cut to one token.
    table = np.array([[1, 0, 0, 0, 0, 0], [0, 0, 0, 2, 1, 0]])
    costs = Costs(np.array([0.1, 0.2]), np.array([0.01, 0.02]), np.array([1.0, 1.1, 1.2]))
    played = replay(table, "round-robin", draft_length=2, costs=costs)
    assert (played.arms, played.lengths, played.emitted) == ([0, 1, 0, 1], [2, 2, 2, 1], [2, 1, 1, 2])
    assert played.seconds == pytest.approx((0.2 + 1.2) + (0.4 + 0.04 + 1.2) + (0.2 + 0.02 + 1.2) + (0.2 + 0.04 + 1.1))
    assert played.tokens_per_second == pytest.approx(6 / 5.8)


def test_the_best_fixed_drafter_and_length():
    costs = Costs.uniform(2, 4, step=0.1, verify=1.0)
    good, bad = [4, 3, 2, 1, 0] * 4, [0] * 20
    assert best_fixed_rate(np.array([bad, good]), costs, range(5)) == (pytest.approx(5 / 1.4), 1, 4)
    assert best_fixed_rate(np.array([bad, bad]), costs, range(5)) == (pytest.approx(1.0), NO_DRAFTER, 0)


def test_block_divergence_cannot_be_replayed():
    with pytest.raises(PolicyError, match=r"'ucb' learns from block divergence.*reward=be"):
        replay(np.ones((2, 5), dtype=int), "ucb")


def test_soft_acceptance_cannot_be_replayed():
    with pytest.raises(PolicyError, match=r"soft acceptance.*use gamma=hard"):
        replay(np.ones((2, 5), dtype=int), "normal-hedge:gamma=soft")


def test_as_many_drafters_are_named_as_the_table_has():
    with pytest.raises(ValueError, match="drafters must name each row of the table, which has 2; got 1"):
        replay(np.ones((2, 5), dtype=int), "ucb:reward=be", drafters=["near"])


def test_a_table_is_no_pool():
    with pytest.raises(PolicyError, match="there is no drafter 'near'; choose one of: arm0, arm1"):
        replay(np.ones((2, 5), dtype=int), "fixed:near")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"drafters": "ab"}, "drafters must be a list of their names, such as pool.drafter_names, got 'ab'"),
        ({"drafters": [object(), object()]}, "drafters must be a list of their names"),
        ({"drafters": 2}, "drafters must be a list of their names"),
        ({"drafters": []}, "drafters must name each row of the table, which has 2; got 0"),
        ({"draft_length": -1}, "draft_length must be a whole number from 0 on, got -1"),
        ({"draft_length": 1.5}, "draft_length must be a whole number from 0 on, got 1.5"),
        ({"max_new_tokens": math.nan}, "max_new_tokens must be a whole number, got nan"),
        ({"max_new_tokens": "9"}, "max_new_tokens must be a whole number, got '9'"),
        ({"prompt": [2, 3]}, r"prompt must be a text, got \[2, 3\]"),
        ({"costs": "pocket"}, "costs must be such as pool.costs, got 'pocket'"),
        ({"costs": Costs.uniform(3, 4, step=1, verify=2)}, "the table has 2 drafters, but the costs are of 3"),
        ({"route": [0.5]}, "route must be a function of the prompt, such as pool.route"),
        ({"prior": {}}, "prior must be of a pool's traffic"),
    ],
)
def test_arguments_that_cannot_be_replayed(given, said):
    """No policy is blamed for them, and no text is taken for names of one letter each."""
    with pytest.raises(ValueError, match=f"^{said}"):
        replay(np.ones((2, 5), dtype=int), "ucb:reward=be", **given)


def test_a_pool_s_own_measurements_are_costs(pool):
    generate(pool, PROMPTS[0], "normal-hedge:warmup=1,every=1", GREEDY)
    played = [
        replay(np.ones((len(pool.drafters), 9), dtype=int), "rate-hedge", draft_length=4, costs=costs)
        for costs in (pool.costs, pool.costs.costs(4))
    ]
    assert played[0] == played[1] and played[0].tokens_per_second > 0


def test_so_many_the_policy_was_made_for():
    with pytest.raises(PolicyError, match="made for 3 drafters, but the table has 2"):
        replay(np.ones((2, 5), dtype=int), make_policy("random", 3))


def test_a_text_is_no_longer_than_it_could_be():
    with pytest.raises(ValueError, match=r"5 tokens, more than max_new_tokens \(4\)"):
        replay(np.ones((2, 5), dtype=int), "round-robin", max_new_tokens=4)


@pytest.mark.parametrize(
    "table", [np.ones(5, dtype=int), np.ones((2, 5)), -np.ones((2, 5), dtype=int), [], [[1, 2], [1]]]
)
def test_a_table_holds_counts(table):
    with pytest.raises(ValueError, match="an array of counts"):
        replay(table, "round-robin")


def test_the_oracle_is_the_best_single_drafter_and_never_live(pool, tables):
    for prompt in PROMPTS:
        *_, table = played_and_replayed(pool, prompt, "fixed:near", GREEDY, tables=tables)
        played = replay(table, "oracle", draft_length=4)
        assert played.regret == 0 and played.rounds == played.best_rounds and played.best_arm_ratio == 1.0
    with pytest.raises(PolicyError, match="'oracle' cannot be played live"):
        generate(pool, PROMPTS[0], "oracle")


def test_drafting_all_is_charged_for_all(pool):
    table = np.array([[0, 1, 0, 0], [2, 0, 0, 0]])
    costs = Costs(np.array([0.1, 0.2]), np.zeros(2), np.ones(4))
    played = replay(table, "draft-all", draft_length=2, costs=costs)
    assert (played.arms, played.emitted) == ([1, NO_DRAFTER], [3, 1])
    assert played.seconds == pytest.approx(1.0 + 2 * 0.3 + 1.0)


@pytest.fixture(scope="module")
def cautious():
    """A pool whose drafters stop where they doubt, and one of which drafts trees."""
    pool = pool_of(tiny.llama(1))
    near, far = pool.drafters[:2]
    near.log_confidence, far.log_confidence = math.log(0.3), math.log(0.3)
    pool.drafters.append(SuffixDrafter("tree", nodes=6))
    return Pool(pool.target, pool.drafters, pool.tokenizer, pool.card)


@pytest.mark.parametrize("spec", ["fixed:near", "fixed:alone", "fixed:tree", "round-robin", "normal-hedge:every=2"])
def test_replays_charge_what_the_live_rounds_drafted_verified_and_evaluated(cautious, spec):
    """Drafts that stop in doubt cost what they hold, also beyond the first refused token, and trees their nodes."""
    costs = Costs(
        np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.01, 0.02, 0.03, 0.04]), 1.0 + 0.05 * np.arange(9), 0.7, 0.001,
        draft_start=np.full(4, 0.6), overhead=0.05,
    )  # fmt: skip
    names, stopped = names_of(cautious), 0
    for prompt in PROMPTS:
        live = generate(cautious, prompt, spec, GREEDY)
        ids = cautious.encode(prompt)
        table = cautious.acceptances([*ids, *live.token_ids], len(ids), GREEDY.draft_length)
        played = replay(table, spec, draft_length=GREEDY.draft_length, drafters=names, prompt=prompt, costs=costs)
        assert played.emitted == [r.emitted for r in live.rounds]
        of_run = {"policy": spec, "prompt_tokens": 0, "readers": None, "baseline_seconds_per_token": None}
        rows = [{**vars(r), "emitted": r.emitted, **of_run} for r in live.rounds]
        near_the_end = [r for r in live.rounds if r.arm == 3 and r.draft_length < GREEDY.draft_length]
        if not near_the_end:  # a shorter tree is not the beginning of a longer one
            assert played.seconds == pytest.approx(priced(rows, costs, 4))
        assert played.seconds == pytest.approx(priced(rows, costs, 4), rel=0.03)
        stopped += sum(r.draft_length > r.depth for r in live.rounds)
    assert stopped


def test_shorter_drafts_are_beginnings_of_the_recorded_ones():
    accepted, drafted, nodes = np.array([[1, 0, 0, 0]]), np.array([[4, 2, 4, 4]]), np.array([[8, 2, 4, 4]])
    costs = Costs(np.array([1.0]), np.zeros(1), 10.0 + 0.1 * np.arange(9))
    played = replay(Acceptances(accepted, drafted, nodes), "fixed:arm0", draft_length=2, max_new_tokens=9, costs=costs)
    # Two tokens in depth and four nodes of the tree's eight, then two tokens of a chain.
    assert played.emitted == [2, 1, 1]
    assert played.seconds == pytest.approx((2.0 + 10.4) + (2.0 + 10.2) + (2.0 + 10.2))
