"""The loaded pool learns from the runs of a server, and again from its history."""

from dataclasses import replace

import numpy as np
import pytest

from drafters.sampling import SamplingParams
from drafters.traffic import Traffic, stretches_of
from multidraft.bench.measure import Measurement, Request
from multidraft.service.learning import learn_from, traffic_of
from storage.run import Origin
from storage.store import Store
from tests import tiny
from tests.engine_cases import pool_of

PARAMS = SamplingParams(max_new_tokens=40, draft_length=4)


@pytest.fixture
def pool():
    pool = pool_of(tiny.llama(1))
    pool.card_hash = "card"
    return pool


def measured(pool, policy="rate-hedge", params=PARAMS, seed=4, learn=True):
    request = Request(tiny.prompts(1, seed=seed)[0], policy, params, 5, Origin("play", learn=learn))
    return Measurement(pool, request).compute()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_run_teaches_and_the_next_begins_with_it(pool, tmp_path, temperature):
    pool.traffic = traffic_of(pool, tmp_path / "runs.db")
    first = measured(pool, params=replace(PARAMS, temperature=temperature))
    assert first.generation.prior is None and stretches_of(first.scores.suitability).shape[1] == len(pool.drafters)
    learn_from(pool, first)
    second = measured(pool, params=replace(PARAMS, temperature=temperature))
    assert second.generation.prior == pool.traffic.prior(second.generation.prompt)
    assert second.generation.prior.lessons == 1
    assert measured(pool, "ucb").generation.prior is None, "it began cold"


def test_a_lost_memory_is_learnt_again_from_the_history(pool, tmp_path):
    path = tmp_path / "runs.db"
    pool.traffic = traffic_of(pool, path)
    with Store(path) as store:
        for seed in range(3):
            run = measured(pool, seed=seed)
            store.add(run)
            learn_from(pool, run)
    again = traffic_of(pool, path)
    assert again.count == 3 and again.prior("x") == pool.traffic.prior("x")


def test_who_opts_out_teaches_nothing(pool):
    pool.traffic = Traffic(len(pool.drafters), pool.draft_length)
    learn_from(pool, measured(pool, learn=False))
    other = measured(pool)
    learn_from(pool, replace(other, conditions=replace(other.conditions, card_hash="another")))
    assert pool.traffic.count == 0


def test_an_unreadable_history_teaches_nothing(pool, tmp_path):
    (tmp_path / "runs.db").write_text("no database at all, but some text that is long enough")
    assert traffic_of(pool, tmp_path / "runs.db").count == 0


def test_it_changes_the_choice_and_not_the_text(pool):
    cold = measured(pool, "normal-hedge:start=cold")
    pool.traffic = Traffic(len(pool.drafters), pool.draft_length)
    favourite = np.full(len(pool.drafters), 0.1)
    favourite[1] = 0.95
    pool.traffic.learn([(cold.generation.prompt, favourite)] + [(f"{n}", favourite) for n in range(8)])
    warm = measured(pool, "ucb:reward=be,start=traffic")
    assert warm.generation.rounds[0].arm == 1
    assert warm.generation.token_ids == cold.generation.token_ids and warm.scores.lossless
