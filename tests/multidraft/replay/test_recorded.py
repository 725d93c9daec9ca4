"""Recorded texts: which can be replayed and why others cannot, their limits, their routers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drafters.base import Acceptances
from drafters.card import find_card, is_bundled, load_card
from drafters.costs import Costs
from drafters.errors import PolicyError, UserError
from drafters.traffic import Prior
from multidraft.policies.specs import without_divergence
from multidraft.replay.recorded import (
    Recorded,
    is_estimate,
    memory_of,
    of_usual_setting,
    recorded_texts,
    route_of,
    texts_with_costs,
)
from storage.filters import Filter
from storage.run import Run
from storage.store import Store
from storage.texts import TextFilter
from tests.runs import make_run

TABLE = Acceptances(*np.zeros((3, 2, 6), dtype=int))
COSTS = Costs.uniform(2, 4, step=0.1, verify=1.0)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Runs 1 and 2 can be replayed, 3 to 6 cannot, each for another reason."""
    with Store(tmp_path / "runs.db") as store:
        for changes in (
            {"prompt": "a", "acceptance": TABLE},
            {"prompt": "b", "acceptance": TABLE},
            {"prompt": "c", "acceptance": TABLE, "status": "cancelled"},
            {"prompt": "d", "temperature": 0.5, "batch_id": "warm"},
            {"prompt": "e", "policy": "autoregressive"},
            {"prompt": "f"},
        ):
            store.add(make_run(**changes))
    return tmp_path / "runs.db"


def test_texts_come_newest_first_with_the_costs_of_their_machine(filled: Path) -> None:
    found = texts_with_costs(recorded_texts(filled), filled)
    assert [text.run.id for text in found] == [2, 1]
    assert found[0].drafters == ("code", "math") and found[0].tokens == 6
    assert found[0].costs.verify[3] == pytest.approx(0.006)


@pytest.mark.parametrize(
    ("id", "reason"),
    [
        (3, "it did not finish (status: cancelled)"),
        (4, "it was sampled, and another policy would have led to another text"),
        (5, "it was decoded without drafters, so nothing is known about theirs"),
        (6, "it was recorded without an acceptance table; run the prompt again"),
        (7, "there is no run of this number"),
    ],
)
def test_why_a_run_cannot_be_replayed(filled: Path, id: int, reason: str) -> None:
    with pytest.raises(UserError) as caught:
        recorded_texts(filled, TextFilter(id=id))
    assert str(caught.value) == f"run {id} cannot be replayed: {reason}"


def test_a_history_without_texts(filled: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"no run can be replayed: .* has no finished greedy run, by a policy with drafters, that"
    ):
        recorded_texts(filled, TextFilter(suite="none"))
    with pytest.raises(UserError, match=r"^no run of batch warm can be replayed; of the latest: it was sampled, "):
        recorded_texts(filled, TextFilter(Filter(batch_id=("warm",))))
    with pytest.raises(UserError, match="there is no database"):
        recorded_texts(tmp_path / "none.db")


@pytest.mark.parametrize(
    ("status", "most", "limit"), [("completed", 9, None), ("stopped", 9, 9), ("stopped", 4, 6), ("window", 9, None)]
)
def test_only_a_text_that_stopped_could_have_been_longer(status: str, most: int, limit: int | None) -> None:
    assert Recorded(make_run(acceptance=TABLE, status=status, max_new_tokens=most), COSTS).limit == limit


def test_a_text_without_a_drafter_is_replayed_with_what_was_expected_of_the_others() -> None:
    table = Acceptances(*np.full((3, 2, 6), 3))
    run = make_run(acceptance=table, max_new_tokens=6)
    run = replace(
        run, generation=replace(run.generation, prior=Prior((0.9, 0.1), (0.2, 0.3), 5, (0.4,), (((0.8, 0.2),),)))
    )
    left = Recorded(run, COSTS).without(run.generation.drafters[0])
    assert left.run.generation.prior == Prior((0.1,), (0.3,), 5, (0.4,), (((0.2,),),))
    assert set(left.replay("rate-hedge").arms) <= {-1, 0}


def test_the_best_fixed_pair_is_compared_with_whole_drafts() -> None:
    """Drafting is so dear that no draft is best; the second drafter alone would have needed two rounds."""
    table = Acceptances(np.array([[0] * 6, [2] * 6]), np.full((2, 6), 3), np.full((2, 6), 3))
    run = make_run(acceptance=table, max_new_tokens=6)
    best = Recorded(run, Costs.uniform(2, 4, step=9.0, verify=1.0)).best_fixed()
    assert (best.rounds, best.drafted_rounds, best.best_arms, best.best_rounds, best.regret) == (6, 0, (1,), 2, 4)
    best = Recorded(run, Costs.uniform(2, 4, step=0.1, verify=1.0)).best_fixed()
    assert (best.arms, best.lengths, best.seconds) == ([1, 1], [2, 2], pytest.approx(2 * 1.2))


@pytest.mark.parametrize(
    ("spec", "estimate"),
    [("ucb", False), ("ucb:start=previous", True), ("ucb:start=router", False), ("rate-hedge", True)],
)
def test_what_depends_on_the_clock_or_the_query_before_is_an_estimate(spec: str, estimate: bool) -> None:
    assert is_estimate(spec) is estimate


def test_a_router_is_that_of_the_drafters_recorded() -> None:
    card, _ = load_card(find_card("pocket"))
    drafters = list(card.routed_names())
    route = route_of("pocket", drafters)
    task, prompt = "math", "A truck drives for 2 hours at 62 kilometres per hour. What is the distance?"
    assert route is not None
    suited = route(prompt)
    assert suited is not None and len(suited) == len(drafters) and route(prompt) is suited
    assert drafters[int(np.argmax(suited))] == task
    assert route_of("pocket", drafters[:-1]) is None
    fewer = route_of(f"pocket:without={drafters[-1]}", drafters[:-1])
    assert is_bundled(f"pocket:without={drafters[-1]}") and not is_bundled("mine:without=a")
    assert list(memory_of(f"pocket:without={drafters[0]}", drafters[1:], "a CPU, 2 cores")) == drafters[1:-1]
    assert fewer is not None and len(fewer(prompt) or ()) == len(drafters) - 1


def test_a_card_without_a_router_has_no_route(pool_card: Path) -> None:
    card, _ = load_card(pool_card)
    assert route_of(pool_card, list(card.routed_names())) is None


@pytest.mark.parametrize(
    ("spec", "replayed"),
    [
        ("ucb", "ucb:reward=be"),
        ("exp3:gamma=0.3", "exp3:gamma=0.3,reward=be"),
        ("ucb:reward=be", "ucb:reward=be"),
        ("ucbspec", "ucbspec"),
        ("ucb-length:good", "ucb-length:drafter=good"),
        ("fixed:whoever", "fixed:whoever"),
        ("fixed", "fixed"),
        ("oracle", "oracle"),
    ],
)
def test_a_reward_that_no_recorded_text_holds_is_replaced(spec: str, replayed: str) -> None:
    assert without_divergence(spec) == replayed


def test_what_no_pool_can_play_is_refused() -> None:
    with pytest.raises(PolicyError, match="unknown policy 'ucbb'"):
        without_divergence("ucbb")


def test_of_texts_with_several_settings_those_with_the_most_frequent_are_taken_or_the_newest() -> None:
    def texts(*lengths: int, **more: Any) -> list[Run]:
        return [make_run(draft_length=length, **more) for length in lengths]

    assert [run.params.draft_length for run in of_usual_setting(texts(4, 12, 12, 4, 12))] == [12, 12, 12]
    assert [run.params.draft_length for run in of_usual_setting(texts(4, 12))] == [4]
    mixed = [*texts(4, max_new_tokens=64), *texts(4, 4, max_new_tokens=32)]
    assert [run.params.max_new_tokens for run in of_usual_setting(mixed)] == [32, 32]
