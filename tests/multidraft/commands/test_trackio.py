"""``trackio``: what it hands to Trackio, here a stand-in; ``make test-clients`` runs the real one."""

import sys
from datetime import datetime
from types import SimpleNamespace

import pytest

from multidraft.__main__ import main
from storage.run import Scores
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
    assert main(["trackio", "--db", db, "--project", "rest", "--after", "2"]) == 0
    assert capsys.readouterr().out == "1 run, up to run 3; go on with --after 3\n"
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


def test_scores_that_come_later_are_sent(db, logged, monkeypatch):
    run, pauses = make_run(policy="exp3"), []

    with Store(db) as store:
        first = store.add(run)
        assert first.wait(5)

        def pause(seconds):
            pauses.append(dict(logged))
            logged.clear()
            if len(pauses) == 3:
                raise KeyboardInterrupt
            run.scores = Scores(regret_rounds=2.0)
            assert store.add(run, anew=first).wait(5)

        # only this command's: threads of servers that other tests started sleep too
        monkeypatch.setattr("multidraft.commands.trackio.time", SimpleNamespace(sleep=pause))
        assert main(["trackio", "--db", db, "--follow"]) == 0
    assert len(pauses[0]) == 4 and "regret_rounds" not in pauses[0]["multidraft", "exp3", 4]
    assert pauses[1:] == [{("multidraft", "exp3", 4): {"regret_rounds": 2.0}}, {}]


def test_a_history_that_is_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace())
    assert main(["trackio", "--db", str(tmp_path / "none.db"), "--follow"]) == 2
    assert "there is no database" in capsys.readouterr().err


def test_without_trackio_it_says_how_to_get_it(db, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "trackio", None)
    assert main(["trackio", "--db", db]) == 2
    assert "pip install -r requirements-trackio.txt" in capsys.readouterr().err
