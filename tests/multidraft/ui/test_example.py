"""The example history is true, labelled, and gives way to the server's own."""

from pathlib import Path

from multidraft.replay.recorded import recorded_texts, texts_with_costs
from multidraft.ui import example
from multidraft.ui.tabs.dashboard.filters import Chosen
from storage import experiments, queries, texts
from storage.connection import outdated
from storage.filters import Filter
from storage.store import Store
from storage.texts import TextFilter
from tests.multidraft.ui.building import built, dashboard_of, opened, results_of
from tests.multidraft.ui.tabs.visits import click
from tests.runs import make_run

ALL = Chosen().values()


def test_the_bundled_file_holds_whole_measured_runs() -> None:
    assert example.FILE.stat().st_size < 400_000
    newest, *_ = experiments.listed(example.path())
    assert newest["finished"] == newest["runs"] and newest["note"] == example.NOTE and newest["timed"] > 1
    assert set(newest["policies"]) == set(example.POLICIES) and "+" in newest["version"]
    (run,) = experiments.runs(example.path(), newest["id"], 1)
    assert run.id > example.FIRST and run.generation.rounds and run.speedup and run.scores.lossless
    found = [experiments.listed(example.path())[place]["id"] for place in (0, 1)]
    written = recorded_texts(example.path(), TextFilter(Filter(batch_id=(found[0],))))
    for text in texts_with_costs(written, example.path()):
        assert text.replay("fixed:general").seconds and text.tokens == text.run.baseline.tokens
    assert [texts.size(example.path(), TextFilter(Filter(batch_id=(id,)))).texts for id in found] == [21, 21]


def test_a_history_is_packed_without_what_is_no_benchmark(tmp_path: Path, monkeypatch) -> None:
    with Store(tmp_path / "runs.db") as store:
        for policy in (*example.POLICIES, "exp3"):
            store.add(make_run(source="bench", policy=policy, batch_id="b"))
        store.add(make_run(source="play", policy="rate-hedge", batch_id="b"))
    monkeypatch.setattr(example, "FILE", tmp_path / "packed")
    assert example.main([str(tmp_path / "runs.db")]) == 0
    unpacked = example._unpacked.__wrapped__()
    assert len(queries.run(unpacked, example.FIRST + 1).generation.rounds) == 2
    assert queries.count(unpacked) == 4 and queries.count(tmp_path / "runs.db") == 6


def test_the_bundled_file_needs_no_migration() -> None:
    """Else each start of a server would make one, and say so in its log: ``python -m multidraft.ui.example``."""
    assert not outdated(example._unpacked.__wrapped__())


def test_a_history_without_its_benchmarks_is_not_packed(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(example, "FILE", tmp_path / "packed")
    with Store(tmp_path / "runs.db") as store:
        store.add(make_run(source="bench", policy="rate-hedge", batch_id="b"))
    for history in ("runs.db", "typing-error.db"):
        assert example.main([str(tmp_path / history)]) == 2 and not example.FILE.exists()
        assert "holds no benchmark of autoregressive" in capsys.readouterr().err


def test_the_dashboard_shows_it_until_there_is_a_run(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        dashboard = built(dashboard_of(store, "other"))
        shown = dashboard.refreshed(click(), {}, *Chosen(pool="other", hardware="mine").values())
        assert "Recorded examples" in shown[dashboard.note] and "One drafter" in shown[dashboard.summary]
        opened = dashboard.run.show(example.FIRST + 1)
        assert f"Run {example.FIRST + 1}" in opened[dashboard.run.head]
        store.add(make_run())
        assert store.flush()
        shown = dashboard.overview(*ALL)
        assert shown[dashboard.note] == "" and "One drafter" not in shown[dashboard.summary]
        assert f"Run {example.FIRST + 1}" in dashboard.run.show(example.FIRST + 1)[dashboard.run.head]


def test_its_results_have_pages_and_can_be_compared(tmp_path: Path) -> None:
    browser = opened(results_of(tmp_path / "none.db"))
    newer, older = (one["id"] for one in experiments.listed(example.path())[:2])
    for place in (f"batch/{newer}", f"comparison/{older}/{newer}", f"run/{example.FIRST + 1}"):
        page, lab = browser.get(f"/result/{place}"), f"?tab=lab&amp;lab_{place.replace('/', '=')}"
        assert page.status_code == 200 and (lab in page.text) == ("batch" in place)
