"""The acceptance table equals drafting at every position, and its walk equals the rounds of a live run."""

import numpy as np
import pytest
import torch

from drafters.base import Evidence, common_prefix
from drafters.errors import PromptError
from drafters.sampling import SamplingParams, probabilities
from multidraft.engine.decoding import generate
from multidraft.replay.regret import (
    acceptance_table,
    expected_regret_of,
    fixed_ends,
    fixed_rounds,
    gamma_table,
    regret_by_round,
    regret_of,
)
from storage.records import Generation
from storage.rows import run_row
from storage.run import Scores
from tests import tiny
from tests.runs import make_round, make_run

PARAMS = SamplingParams(30)


def brute_force(pool, prompt, output, draft_length):
    """A fresh draft at every position, compared with the text."""
    whole = [*prompt, *output]
    table = np.zeros((len(pool.drafters), len(output)), dtype=np.int64)
    for row, drafter in enumerate(pool.drafters):
        for s in range(len(output)):
            drafter.prepare(())
            position = len(prompt) + s
            draft = drafter.propose(whole[:position], draft_length, SamplingParams(), torch.Generator())
            table[row, s] = common_prefix(list(draft.tokens), whole[position:])
    return table


@pytest.mark.parametrize("draft_length", [1, 4, 7])
def test_the_table_equals_drafting_everywhere(pool, draft_length):
    for prompt in tiny.prompts(3, seed=20, longest=30):
        output = generate(pool, prompt, "autoregressive", PARAMS).token_ids
        table = acceptance_table(pool, prompt, output, draft_length)
        assert table.shape == (4, 30) and table.dtype == np.int64
        np.testing.assert_array_equal(table, brute_force(pool, prompt, output, draft_length))
        assert table.max() <= draft_length


@pytest.mark.parametrize("draft_length", [1, 4, 7])
def test_the_walk_equals_the_rounds_of_a_live_run(pool, draft_length):
    params = SamplingParams(30, draft_length=draft_length)
    for prompt in tiny.prompts(5, seed=21, longest=30):
        output = generate(pool, prompt, "autoregressive", params).token_ids
        table = acceptance_table(pool, prompt, output, draft_length)
        for row, drafter in zip(table, pool.drafters, strict=True):
            live = generate(pool, prompt, f"fixed:{drafter.name}", params)
            assert fixed_rounds(row) == len(live.rounds), drafter.name
            positions = np.cumsum([0, *(r.emitted for r in live.rounds)])
            assert [r.accepted for r in live.rounds[:-1]] == row[positions[:-2]].tolist()


def test_the_walk_equals_a_live_run_that_ends_early(pool):
    """At a stop token inside a draft, and at the end of the context window."""
    for prompt in tiny.prompts(4, seed=22, shortest=20, longest=30):
        pool.stop_ids = frozenset({tiny.greedy(pool.target.model, prompt, 12)[9]})
        for params in (SamplingParams(30, draft_length=5), SamplingParams(500, draft_length=5)):
            baseline = generate(pool, prompt, "autoregressive", params)
            table = acceptance_table(pool, prompt, baseline.token_ids, 5)
            for row, drafter in zip(table, pool.drafters, strict=True):
                live = generate(pool, prompt, f"fixed:{drafter.name}", params)
                assert live.status == baseline.status
                assert fixed_rounds(row) == len(live.rounds), drafter.name
        pool.stop_ids = frozenset()


@pytest.mark.parametrize("ids", [("abc", [1]), ([1], "abc"), (5, [1]), ([1], None), ([1], ["a"]), ([1], [1.5])])
def test_a_table_is_made_from_token_ids_alone(pool, ids):
    with pytest.raises(PromptError, match=r"from token ids: pool\.encode\(prompt\)"):
        acceptance_table(pool, *ids, 4)


@pytest.mark.parametrize(
    ("prompt", "output", "length", "problem"),
    [
        ([], [2], 4, "prompt is empty"),
        ([2], [99_999], 4, "token id 99999 is not"),
        ([2], [2], 0, "draft_length must be at least 1"),
    ],
)
def test_a_table_is_refused_where_it_would_mean_nothing(pool, prompt, output, length, problem):
    with pytest.raises((PromptError, ValueError), match=problem):
        acceptance_table(pool, prompt, output, length)


def test_drafters_left_out_of_a_table_must_be_there(pool):
    assert not acceptance_table(pool, [2, 3], [2, 3], 4, without=["near"])[pool.drafter_names.index("near")].any()
    with pytest.raises(ValueError, match="the pool has no drafter 'neer'; its drafters: near, "):
        acceptance_table(pool, [2, 3], [2, 3], 4, without=["neer"])
    with pytest.raises(ValueError, match="without must be a list of drafters' names, got 'near'"):
        acceptance_table(pool, [2, 3], [2, 3], 4, without="near")


def test_the_table_of_no_output_is_empty(pool):
    assert acceptance_table(pool, [2, 3, 4], [], 4).shape == (4, 0)


def test_the_table_does_not_depend_on_what_the_drafters_saw_before(pool):
    prompt = tiny.prompts(1, seed=23)[0]
    output = generate(pool, prompt, "autoregressive", PARAMS).token_ids
    expected = acceptance_table(pool, prompt, output, 4)
    generate(pool, [9, 8, 7], "round-robin", PARAMS)
    np.testing.assert_array_equal(acceptance_table(pool, prompt, output, 4), expected)


@pytest.mark.parametrize(
    ("accepted", "rounds"),
    [([], 0), ([0, 0, 0], 3), ([3, 9, 9, 9], 1), ([1, 0, 0, 0], 3), ([0, 2, 0, 0, 1], 3), ([5], 1)],
)
def test_fixed_rounds(accepted, rounds):
    assert fixed_rounds(np.array(accepted, dtype=np.int64)) == rounds


@pytest.mark.parametrize(("length", "ends"), [(None, [4, 5]), (2, [3, 5]), (0, [1, 2, 3, 4, 5])])
def test_where_rounds_end_by_hand(length, ends):
    assert fixed_ends([3, 1, 0, 2, 0], length) == ends
    assert fixed_ends([3, 1, 0, 2, 1], length)[-1] == 5, "a draft may hold the last token, too"


def test_regret_against_the_best_single_drafter(pool):
    prompt = tiny.prompts(1, seed=24)[0]
    output = generate(pool, prompt, "autoregressive", PARAMS).token_ids
    table = acceptance_table(pool, prompt, output)
    needed = [fixed_rounds(row) for row in table]
    best = needed.index(min(needed))
    names = [drafter.name for drafter in pool.drafters]
    for index, drafter in enumerate(pool.drafters):
        regret = regret_of(generate(pool, prompt, f"fixed:{drafter.name}", PARAMS), table)
        assert regret == Scores(
            regret_rounds=needed[index] - needed[best],
            best_drafter=names[best],
            best_arm_ratio=float(index == best),
            drafter_rounds=dict(zip(names, needed, strict=True)),
        )
    turns = generate(pool, prompt, "round-robin", PARAMS)
    regret = regret_of(turns, table)
    assert regret.regret_rounds == len(turns.rounds) - min(needed)
    arms = [r.arm for r in turns.rounds if r.arm is not None]
    assert regret.best_arm_ratio == arms.count(best) / len(arms)


def test_ties_go_to_the_first_drafter_and_switching_may_beat_every_one():
    table = np.array([[1, 0, 0, 0], [0, 0, 1, 0]])
    generation = Generation("", "p", ("a", "b"), 1)
    found = regret_of(generation, table)
    assert (found.regret_rounds, found.best_drafter, found.best_arm_ratio) == (-3, "a", 0.0)
    assert found.drafter_rounds == {"a": 3, "b": 3}
    played = Generation("", "p", ("a", "b"), 1, rounds=[make_round(arm=1, drafter="b"), make_round(arm=0, drafter="a")])
    assert regret_of(played, table).best_arm_ratio == 1.0, "both are the best"
    row = run_row(make_run(played, **vars(regret_of(played, table))).to_json())
    assert row["best_arm_rounds"] == "11"


def test_expected_regret_is_the_losses_played_minus_the_best_column():
    gamma = np.array([[0.5, 1.0], [1.0, 0.0], [0.25, 0.5], [1.0, 1.0], [0.0, 0.5]])
    # K = 2: EAL = 1 + g_t + g_t g_{t+1}, known for the first four positions.
    eal = [1 + g[0] + g[0] * g[1] for g in (gamma[i : i + 2] for i in range(4))]
    losses = 1 - np.array(eal) / 3
    played = [(0, 1), (1, 2), (None, 1), (0, 1)]  # at positions 0, 1, 3 (none), 4 (unknown)
    rounds = [make_round(arm=arm, tokens=(0,) * emitted) for arm, emitted in played]
    found = expected_regret_of(Generation("p", "x", ("a", "b"), 1, rounds=rounds), gamma[:, None], 2)
    totals = losses[0] + losses[1]
    assert found.expected_regret == pytest.approx(losses[0][0] + losses[1][1] - totals.min())
    assert (found.best_drafter, found.best_arm_ratio) == ("ab"[totals.argmin()], 2 / 3), "also of the last round"


def test_without_a_complete_loss_nothing_is_expected():
    rounds = [make_round(arm=0, tokens=(0, 0))]
    assert expected_regret_of(Generation("p", "x", ("a",), 1, rounds=rounds), np.ones((2, 3, 1)), 3) == Scores()


def test_the_gamma_of_no_output_is_empty(pool):
    assert gamma_table(pool, [2, 3, 4], [], SamplingParams(temperature=1.0, draft_length=3)).shape == (0, 3, 4)


@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_gamma_table_is_the_overlap_of_the_distributions(pool, chunk):
    params = SamplingParams(17, temperature=0.8, top_k=6, draft_length=3)
    prompt = pool.encode("abca")
    out = generate(pool, prompt, "random", params, seed=3)
    table = gamma_table(pool, prompt, out.token_ids, params, chunk)
    context = [*prompt, *out.token_ids]
    p = probabilities(tiny.logits_of(pool.target.model, context), params)[len(prompt) - 1 : -1]
    whole = pool.gamma(Evidence(context, len(prompt), p, params))
    np.testing.assert_allclose(table, whole, atol=1e-5)


def test_expected_regret_of_a_run_is_what_brute_force_says(pool):
    params = SamplingParams(40, temperature=1.0, draft_length=3)
    prompt = pool.encode("abca")
    out = generate(pool, prompt, "random", params, seed=3)
    gamma = gamma_table(pool, prompt, out.token_ids, params)
    found = expected_regret_of(out, gamma, 3)
    own, position, arms = 0.0, 0, []
    fixed = np.zeros(len(pool.drafters))
    for r in out.rounds:
        if r.arm is not None and position + 3 <= len(gamma):
            reach = np.cumprod([gamma[position + depth, depth] for depth in range(3)], axis=0)
            losses = 1 - (1 + reach.sum(axis=0)) / 4
            own += losses[r.arm]
            arms.append(r.arm)
            fixed += losses
        position += r.emitted
    assert found.best_drafter == pool.drafters[fixed.argmin()].name and len(arms) > 5
    assert found.best_arm_ratio == arms.count(int(fixed.argmin())) / len(arms) != 0.5
    assert found.expected_regret == pytest.approx(own - fixed.min()) and found.expected_regret > 0


def test_regret_by_round_is_rounds_less_those_of_the_best_drafter():
    """The best drafter's rounds end at 3, 4 and 6; its last draft reaches beyond the text."""
    table = np.array([[0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 3, 0]])
    assert regret_by_round([1, 1, 1, 1, 1, 1], table).tolist() == [0, 1, 2, 2, 2, 3]
    assert regret_by_round([4, 2], table).tolist() == [-1, -1]


def test_regret_by_round_ends_at_the_regret(pool):
    prompt = pool.encode("abca")
    out = generate(pool, prompt, "random", SamplingParams(40, draft_length=3), seed=3)
    table = acceptance_table(pool, prompt, out.token_ids, 3)
    grown = regret_by_round([r.emitted for r in out.rounds], table)
    assert len(grown) == len(out.rounds) and grown[-1] == regret_of(out, table).regret_rounds
