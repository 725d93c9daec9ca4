"""Filters that together leave no run."""

from pathlib import Path

import pytest

from multidraft.ui.tabs.dashboard.filters import CONTROLS, Chosen, let_go, nothing_fits_html, relaxed
from storage.store import Store
from tests.multidraft.ui.building import built, dashboard_of
from tests.multidraft.ui.tabs.visits import click
from tests.runs import make_run

PLACES = {control.column: place for place, control in enumerate(CONTROLS)}


@pytest.fixture
def history(store: Store) -> Path:
    """A run of each of two pools, of different tasks and cards."""
    for pool, task in (("one", "math"), ("other", "sql")):
        store.add(make_run(pool=pool, card_hash=f"card of {pool}", task=task, version="1"))
    assert store.flush()
    return store.path


def test_what_does_not_apply_below_a_changed_filter_is_let_go_and_nothing_else(history: Path) -> None:
    chosen = Chosen("other", task=["math"], version="1", card_hash="card of one")
    assert let_go(history, chosen, PLACES["pool"]) == Chosen("other", version="1")
    assert let_go(history, chosen, PLACES["task"]) == chosen, "the task was just chosen, the pool stands above it"
    fits = Chosen("other", card_hash="card of other")
    assert let_go(history, fits, PLACES["pool"]) == fits
    none = Chosen("other", card_hash="card of one", since="2000-01-01", until="2000-01-02")
    assert let_go(history, none, PLACES["pool"]) == none, "without the card there is no run of that day either"


def test_filters_without_which_runs_match_are_one_click_away(history: Path) -> None:
    said = nothing_fits_html(history, Chosen("other", version="1", card_hash="card of one"))
    assert 'data-relax="pool">all pools: 1 run<' in said and 'data-relax="card_hash">all cards: 1 run<' in said
    assert "version" not in said
    said = nothing_fits_html(history, Chosen("one", since="2000-01-01", until="2000-01-02"))
    assert 'data-relax="since until">all days: 1 run<' in said
    several = Chosen("other", task=["math"], card_hash="card of one", until="2000-01-02")
    assert said.count("<button") == 1 and "no filter: 2 runs" in nothing_fits_html(history, several)
    assert relaxed(several, "card_hash until") == Chosen("other", task=["math"])


def test_a_history_without_a_finished_run_says_so(store: Store) -> None:
    store.add(make_run(status="cancelled"))
    assert store.flush()
    assert "No run has finished yet." in nothing_fits_html(store.path, Chosen())


def test_the_page_lets_go_what_the_changed_pool_does_not_have(store: Store, history: Path) -> None:
    dashboard = built(dashboard_of(store))
    chosen = Chosen("other", card_hash="card of one")
    updates = dashboard.refreshed(click(target=dashboard.filters[0]), {}, *chosen.values())
    assert updates[dashboard.filters[PLACES["card_hash"]]].value == "" and updates[dashboard.body].visible is True
    updates = dashboard.refreshed(click(), {}, *chosen.values())
    assert updates[dashboard.body].visible is False and "data-relax" in updates[dashboard.note]
    updates = dashboard.relaxed(click(relax="card_hash"), 3, *chosen.values())
    assert (
        updates[dashboard.filters[PLACES["card_hash"]]].value == "" and updates[dashboard.filters[0]].value == "other"
    )
    assert updates[dashboard.narrowed] == 4 and dashboard.filters[-2] not in updates
    assert dashboard.filters[-2] in dashboard.relaxed(click(relax="since until"), 3, *chosen.values())
