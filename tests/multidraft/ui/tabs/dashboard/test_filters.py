from pathlib import Path

import gradio as gr
import pytest

from drafters.errors import UserError
from multidraft.ui.tabs.dashboard.filters import (
    CONTROLS,
    PARAMETERS,
    Chosen,
    Control,
    days,
    known,
    let_go,
    more_title,
    not_taken,
    nothing_fits_html,
    offered,
    relaxed,
)
from storage.filters import Filter
from storage.store import Store
from tests.multidraft.ui.building import built, dashboard_of
from tests.multidraft.ui.tabs.visits import click
from tests.runs import make_run

DEFAULTS = {"pool": "pocket", "hardware": "CPU"}
FOUND = {
    "pool": ["pocket"],
    "hardware": ["CPU", "GPU"],
    "policy": ["fixed:near", "ucb"],
    "task": ["math"],
    "version": ["1.0"],
    "dtype": ["float32"],
    "card_hash": ["c0ffee"],
    "baseline_kind": ["prefix"],
    "source": ["bench", "play"],
    "draft_length": ["4", "12"],
    "temperature": ["0.0"],
    "max_new_tokens": ["64"],
}


def test_an_address_without_filters_has_the_defaults() -> None:
    assert Chosen.from_query("tab=dashboard", DEFAULTS).filter() == Filter(pool="pocket", hardware="CPU", shared=True)


def test_filters_of_an_address() -> None:
    query = (
        "?pool=&policy=ucb%3Abeta%3D0.1%2Creward%3Dbe&policy=exp3&task=a%26b&from=2026-01-02&to=2026-01-31&version=1"
    )
    assert Chosen.from_query(query, DEFAULTS).filter() == Filter(
        hardware="CPU",
        policy=("ucb:beta=0.1,reward=be", "exp3"),
        task=("a&b",),
        version="1",
        since="2026-01-02",
        until="2026-02-01",  # the last day is part of it
        shared=True,
    )


@pytest.mark.parametrize("control", [control for control in CONTROLS if not control.several], ids=lambda c: c.column)
def test_what_a_page_shows_that_is_not_offered_any_more_is_no_error(control: Control) -> None:
    """The choices may have changed on the server before the page knows."""
    with gr.Blocks():
        dropdown = control.build(Chosen(**DEFAULTS), 160)
    assert dropdown.preprocess("gone") == "gone"
    assert not getattr(known(FOUND, Chosen(**{control.column: "gone"})), control.column)


def test_every_control_has_its_parameter() -> None:
    query = "&".join(f"{name}={name}" for name in PARAMETERS)
    chosen = Chosen.from_query(query, {})
    *values, unshared = chosen.values()
    assert [*(v if isinstance(v, str) else v[0] for v in values), "unshared"] == list(PARAMETERS) and unshared is False
    assert not Chosen.from_query("unshared=true", {}).filter().shared


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        ("yesterday", None, "'From' needs a day such as 2026-01-31, not 'yesterday'"),
        (None, "2026-02-30", "'To' needs a day"),
        ("2026-02-01", "2026-01-01", "2026-01-01, is before its first, 2026-02-01"),
    ],
)
def test_days_that_cannot_be(since: str | None, until: str | None, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Chosen(since=since, until=until).filter()


def test_choices_that_are_gone_are_dropped() -> None:
    chosen = Chosen(
        "gone",
        "GPU",
        ["ucb", "gone"],
        ["gone"],
        "1.0",
        "gone",
        "c0ffee",
        "",
        ["play"],
        "4",
        since="2026-01-01",
        until="never",
    )
    pool, hardware, policies, tasks, version, dtype, card, baseline, source, length, *_ = controls = offered(
        FOUND, known(FOUND, chosen)
    )
    assert (pool.value, hardware.value, version.value, dtype.value, card.value) == ("", "GPU", "1.0", "", "c0ffee")
    assert length.value == "4" and Chosen(draft_length="4").filter().draft_length == "4"
    assert policies.value == ["ucb"] and ("One drafter (near)", "fixed:near") in policies.choices
    assert tasks.value == [] and known(FOUND, chosen).since == "2026-01-01" and len(controls) == len(CONTROLS)
    assert pool.choices[0] == ("all pools", "") and baseline.value == "" and source.value == ["play"]


def test_days_that_are_none_leave_the_controls_alone() -> None:
    since, until, unshared = days(Chosen(since="2026-01-01", until="never"))
    assert unshared is False
    assert since == "2026-01-01" and until == days(Chosen())[0] == gr.skip()


def test_filters_that_are_folded_away_are_named_when_they_are_on() -> None:
    assert more_title(Chosen("pocket", "CPU", ["ucb"], ["math"])).startswith(
        "More filters: first day, last day, code version"
    )
    chosen = Chosen(version="1.0", card_hash="c0ffee", source=["play"])
    assert more_title(chosen) == "More filters, 3 on: code version, pool card, sources"
    assert more_title(Chosen(since="2026-01-02")) == "More filters, 1 on: first day"


def test_what_is_not_taken_of_an_address_is_named() -> None:
    query = "tab=dashboard&pool=nope&hardware=CPU&policy=xyz&policy=ucb&from=nonsense&to=2026-01-02"
    assert not_taken(FOUND, query) == ["pool=nope", "policy=xyz", "from=nonsense"]
    assert not_taken(FOUND, "tab=dashboard&pool=&card=c0ffee") == []


# Filters that together leave no run.

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
