"""``trackio``: what it hands to Trackio, here a stand-in; ``make test-clients`` runs the real one."""

import sys
from datetime import datetime
from types import SimpleNamespace

import pytest

from multidraft.__main__ import main
from storage.store import Store
from tests.runs import make_run


@pytest.fixture
def logged(monkeypatch):
    """What was logged, by project, name and step."""
    found = {}

    def init(project, name, resume, **_):
        def log(values, step):
            found[project, name, step] = values

        return SimpleNamespace(log=log, finish=lambda: None)

    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(init=init, Trace=lambda **given: given))
    return found


@pytest.fixture
def db(tmp_path):
    with Store(tmp_path / "runs.db") as store:
        for policy in ("ucb", "hedge", "ucb"):
            store.add(make_run(policy=policy))
    return str(tmp_path / "runs.db")


def test_a_run_is_a_trace_and_a_round_a_span(db, logged, capsys):
    assert main(["trackio", "--db", db, "--project", "p"]) == 0
    assert sorted(logged) == [("p", "hedge", 2), ("p", "ucb", 1), ("p", "ucb", 3)]
    assert "3 runs, up to run 3" in capsys.readouterr().out
    values = logged["p", "ucb", 1]
    trace = values["trace"]
    assert trace["messages"][-2:] == [
        {"role": "user", "content": "What is 2 + 3?"},
        {"role": "assistant", "content": "abcabc"},
    ]
    assert values["mean_accepted_tokens"] == trace["metadata"]["mean_accepted_tokens"] == 3
    assert trace["metadata"]["duration_ms"] == pytest.approx(23) and trace["metadata"]["status"] == "ok"
    first, second = trace["spans"]
    assert (first["name"], first["output"], first["usage"]) == ("math", "abc", {"completion_tokens": 3})
    assert first["input"] == "abe" and first["metadata"]["accepted"] == 2
    assert first["duration_ms"] == pytest.approx(10) and first["end_time"] == second["start_time"]
    assert datetime.fromisoformat(first["start_time"]) < datetime.fromisoformat(second["start_time"])


def test_it_goes_on_after_a_run(db, logged):
    assert main(["trackio", "--db", db, "--after", "2"]) == 0
    assert list(logged) == [("multidraft", "ucb", 3)]


def test_without_trackio_it_says_how_to_get_it(db, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "trackio", None)
    assert main(["trackio", "--db", db]) == 2
    assert "pip install -r requirements-trackio.txt" in capsys.readouterr().err
