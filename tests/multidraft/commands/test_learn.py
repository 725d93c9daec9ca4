"""The command that shows, exports and forgets what pools have learnt."""

import json

import pytest

from multidraft.__main__ import main
from multidraft.commands import learn
from storage import lessons
from storage.lessons import pools
from storage.store import Store
from tests.storage.test_lessons import teaching


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "runs.db"
    with Store(path) as store:
        for prompt, told in (("Write SQL for cats", (0.1, 0.9)), ("Write SQL for dogs", (0.3, 0.7))):
            run = teaching(prompt, told)
            run.generation.drafters = ("math", "sql")
            store.add(run)
    return path


def test_it_shows_what_was_learnt_and_what_it_makes_expect(db, capsys):
    assert main(["learn", "--db", str(db), "--prompt", "Write SQL for birds"]) == 0
    shown = capsys.readouterr().out
    assert "2 lessons recorded; those of the last 2 distinct prompts are in use." in shown
    assert "| math | 0.20 | 0.30 |" in shown and "| sql | 0.80 | 0.90 |" in shown
    expected = {line.split(" | ")[0].strip("| "): float(line.split(" | ")[3]) for line in shown.splitlines()[4:6]}
    assert expected["sql"] > expected["math"]
    tokens = float(shown.splitlines()[5].split(" | ")[4])
    assert tokens == pytest.approx(sum(expected["sql"] ** depth for depth in range(1, 4)), abs=0.1)
    assert "tokens of 3 accepted | ± |" in shown


def test_it_exports_and_forgets(db, tmp_path, capsys):
    assert main(["learn", "--db", str(db), "--export", str(tmp_path / "out.json")]) == 0
    (pool,) = json.loads((tmp_path / "out.json").read_text())
    assert pool["drafters"] == ["math", "sql"]
    assert pool["lessons"][0] == {"prompt": "Write SQL for cats", "suitability": [0.1, 0.9]}
    assert main(["learn", "--db", str(db), "--reset"]) == 0
    assert "2 lessons to forget; with --yes that is done" in capsys.readouterr().out
    assert len(lessons.lessons(db, "h")) == 2
    assert main(["learn", "--db", str(db), "--reset", "--yes"]) == 0
    assert "2 lessons forgotten" in capsys.readouterr().out
    assert lessons.lessons(db, "h") == [] and lessons.pools(db) == []
    assert main(["learn", "--db", str(db)]) == 2
    assert "has no lessons for any pool; those that there were are forgotten (--reset)" in capsys.readouterr().err


def test_what_there_is_nothing_to_show_of_is_told(db, tmp_path, capsys):
    assert main(["learn", "--db", str(tmp_path / "none.db")]) == 2
    assert "there is no database" in capsys.readouterr().err
    assert main(["learn", "--db", str(db), "--pool", "other"]) == 2
    assert "has no lessons for pool 'other'" in (said := capsys.readouterr().err) and "there are some for: " in said
    assert main(["learn", "--db", str(db), "--export", str(tmp_path / "no" / "out.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_prompt_unlike_all_others_is_left_to_the_router(db, capsys, monkeypatch):
    (pool,) = pools(db)
    monkeypatch.setattr(learn, "is_bundled", lambda name: name == pool.pool)
    monkeypatch.setattr(learn, "route_of", lambda *_: lambda prompt: [0.0, 1.0] if "SQL" in prompt else [1.0, 0.0])
    for prompt, unlike in (("Write SQL for birds", False), ("Add one and one", True)):
        assert main(["learn", "--db", str(db), "--prompt", prompt]) == 0
        shown = capsys.readouterr().out
        assert ("a query would begin with the router's guess" in shown) == unlike != ("for this prompt" in shown)
