"""The list of experiments: sought, noted on, and what visitors may not do."""

from types import SimpleNamespace
from typing import Any

import pytest

from multidraft.ui.result_pages.result import experiment_result
from multidraft.ui.tabs.results.tab import Results
from multidraft.ui.tabs.results.view import list_html
from storage import experiments
from storage.store import Store
from tests.multidraft.ui.building import built
from tests.multidraft.ui.tabs.visits import click, visit
from tests.runs import make_round, make_run

ROUNDS = [make_round(index) for index in range(3)]


def build(store: Store, may_note: bool = True) -> Results:
    return built(Results(SimpleNamespace(store=store, jobs=SimpleNamespace(listed=[])), may_note))


@pytest.fixture
def filled(store: Store) -> Store:
    for batch, source, version, prompts in (("one", "batch", "1.0", 4), ("two", "race", "1.1", 1)):
        for number in range(prompts):
            values = {"batch_id": batch, "source": source, "version": version, "prompt": f"<i>add {number}"}
            store.add(make_run(rounds=ROUNDS, policy="ucb" if source == "batch" else "rate-hedge", **values))
    assert store.flush()
    return store


def test_as_long_as_there_is_none_the_recorded_examples_are_listed(store: Store) -> None:
    tab = build(store)
    assert "Recorded examples: benchmarks" in tab.show(0, "", "", "", "newest")[tab.list]
    assert "No results match" in tab.show(0, "no such word", "", "", "newest")[tab.list]


def test_experiments_are_listed_with_their_figures_and_pages(filled: Store) -> None:
    tab = build(filled)
    assert tab.show(0, "", [], [""], [])[tab.list] == tab.show(0, "", "", "", "newest")[tab.list]
    shown = tab.show(0, "", "", "", "suite")
    table = shown[tab.list]
    assert 'href="result/batch/one"' in table and 'href="result/race/two"' in table and "<i>" not in table
    assert "Race: “&lt;i&gt;add 0”, draft length " in table, "told from its settings"
    assert "1.88×" in table and "Results 1–2 of 2" in shown[tab.range]
    assert shown[tab.newer].interactive is shown[tab.older].interactive is False


@pytest.mark.parametrize(
    ("sought", "found"),
    [
        (("add 3", "", ""), {"one"}),
        (("1.1", "", ""), {"two"}),
        (("hedge (OUR", "", ""), {"two"}),
        (("", "race", ""), {"two"}),
        (("", "", "1.0"), {"one"}),
        (("none", "", ""), set()),
    ],
)
def test_only_what_is_sought_is_listed(filled: Store, sought: tuple[str, str, str], found: set[str]) -> None:
    tab = build(filled)
    table = tab.show(0, *sought, "newest")[tab.list]
    assert {id for id in ("one", "two") if f'data-experiment="{id}"' in table} == found
    assert found or "No results match" in table


def test_the_address_says_what_is_sought_and_nonsense_in_it_is_passed_over(filled: Store) -> None:
    tab = build(filled)

    def restored(query: str) -> list[Any]:
        words, kind, version, order = tab.restore(visit(query))
        return [words, kind, version.value, order]

    assert restored("words=add&kind=race&made_by=1.1&order=runs") == ["add", "race", "1.1", "runs"]
    assert restored("kind=x&made_by=9&order=drop") == ["", "", "", "newest"]


def test_a_phrase_stands_together_and_names_the_draft_length(filled: Store) -> None:
    for batch, length in (("four", 4), ("twelve", 12)):
        filled.add(make_run(rounds=ROUNDS, batch_id=batch, source="batch", suite="mine", draft_length=length))
    filled.note("twelve", "default length of 4 texts")
    assert filled.flush()
    tab = build(filled)

    def found(words: str) -> set[str]:
        table = tab.show(0, words, "", "", "newest")[tab.list]
        return {id for id in ("one", "two", "four", "twelve") if f'data-experiment="{id}"' in table}

    assert found("length 4") == {"four"} and found("length mine") == {"four", "twelve"} and found("four") == {"four"}
    assert "Batch: mine, draft length 12" in tab.show(0, "", "", "", "newest")[tab.list]


def test_a_batch_under_way_says_how_far_it_is(filled: Store) -> None:
    job: Any = SimpleNamespace(id="one", runs_done=3, total=90)
    table = list_html(filled.path, experiments.listed(filled.path), False, [job])
    assert "running<small>3 of 90 runs</small>" in table and table.count("disabled") == 2


def test_regret_is_that_of_the_policy_beside_the_speedup_as_on_its_page(filled: Store) -> None:
    for prompt, regret, rounds in (("a", 2.5, ROUNDS), ("too short for a speed-up", 40, ROUNDS[:1])):
        filled.add(make_run(rounds=rounds, policy="ucb", batch_id="three", prompt=prompt, regret_rounds=regret))
    assert filled.flush()
    shown, page = (
        list_html(filled.path, experiments.listed(filled.path)[:1], False),
        experiment_result(filled.path, "three"),
    )
    assert ">2.5<small>UCB</small></td>" in shown and page and page.figures[0]["regret_rounds"] == 2.5


def test_a_note_is_written_where_visitors_may(filled: Store) -> None:
    tab = build(filled)
    opened = tab.open_note(click(note="one"))
    assert opened[tab.noting].visible and opened[tab.note].label.startswith("Note on Batch: “<i>add")
    tab.save_note("one", " before <b>the change ")
    assert experiments.listed(filled.path)[-1]["note"] == "before <b>the change"
    assert "before &lt;b&gt;the change" in tab.show(0, "change", "", "", "newest")[tab.list]
    tab.save_note("unknown", "x")
    public = build(filled, may_note=False)
    public.save_note("one", "spoilt")
    assert filled.flush() and experiments.listed(filled.path)[-1]["note"] == "before <b>the change"
    assert "data-note" not in public.show(0, "", "", "", "newest")[public.list]
