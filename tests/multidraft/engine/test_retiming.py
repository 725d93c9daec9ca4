from __future__ import annotations

from dataclasses import replace

import pytest

from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import Decoding
from multidraft.engine.retiming import Retiming
from storage.records import PHASES, Generation, Round

PROMPT = "abc abd abe"
TIMES = {f"{phase}_seconds": 1e9 for phase in PHASES}


def decoded(pool: Pool, policy: str, temperature: float) -> tuple[Generation, Retiming]:
    """A generation with impossible times, and what decodes it again."""
    asked = (PROMPT, policy, SamplingParams(24, draft_length=4, temperature=temperature), 3)
    generation = Decoding(pool, *asked).run()
    generation.rounds[:] = [replace(r, **TIMES) for r in generation.rounds]
    return generation, Retiming(generation, pool, *asked, learn=False)


def untimed(rounds: list[Round]) -> list[Round]:
    return [replace(r, **dict.fromkeys(TIMES, 0.0)) for r in rounds]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("policy", ["ucb", "rate-hedge", "normal-hedge:every=2", "exp3", "draft-all", "autoregressive"])
def test_the_same_rounds_have_new_times(pool: Pool, policy: str, temperature: float) -> None:
    generation, again = decoded(pool, policy, temperature)
    before = list(generation.rounds)
    steps = sum(1 for _ in again.retime())
    assert steps == len(before) and untimed(generation.rounds) == untimed(before)
    assert all(0 < r.seconds < 60 for r in generation.rounds)
    assert [r.evaluated > 0 for r in again.generation.rounds] == [r.evaluated > 0 for r in before]


def test_where_a_drafter_drafts_otherwise_by_now_the_times_stay(pool: Pool) -> None:
    generation, again = decoded(pool, "fixed:" + pool.drafters[0].name, 0.0)
    odd = replace(generation.rounds[1], drafted=(*generation.rounds[1].drafted, 0))
    generation.rounds[1] = odd
    before = list(generation.rounds)
    assert sum(1 for _ in again.retime()) == 1
    assert generation.rounds == before


def test_one_that_is_stopped_leaves_the_times(pool: Pool) -> None:
    generation, again = decoded(pool, "ucb", 0.0)
    before = list(generation.rounds)
    for _ in again.retime():
        again.cancel()
    assert generation.rounds == before
