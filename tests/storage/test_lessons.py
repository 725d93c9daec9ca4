"""What the runs of a history teach, and forgetting it."""

from dataclasses import replace

from drafters.traffic import Prior
from storage import lessons, queries
from storage.store import Store
from tests.runs import make_run


def teaching(prompt, told=(0.25, 0.75), card="h", learn=True):
    run = make_run()
    run.generation.prompt, run.scores = prompt, replace(run.scores, suitability=told)
    run.conditions, run.origin = replace(run.conditions, card_hash=card), replace(run.origin, learn=learn)
    return run


def test_lessons_are_those_of_the_pool_oldest_first(tmp_path):
    path = tmp_path / "runs.db"
    with Store(path) as store:
        for run in (teaching("a"), teaching("b", card="other"), teaching("c", (0.5, 0.5)), teaching("d", None)):
            store.add(run)
        store.add(teaching("private", learn=False))
    assert lessons.lessons(path, "h") == [("a", [0.25, 0.75]), ("c", [0.5, 0.5])]
    assert lessons.lessons(path, "h", newest=1) == [("c", [0.5, 0.5])]
    assert lessons.count(path, "h") == 2
    assert lessons.lessons(tmp_path / "none.db", "h") == []


def test_what_a_pool_forgets_stays_in_the_history(tmp_path):
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.add(teaching("a"))
        store.add(teaching("b", card="other"))
    lessons.forget(path, "h")
    with Store(path) as store:
        store.add(teaching("c"))
    assert [prompt for prompt, _ in lessons.lessons(path, "h")] == ["c"]
    assert [prompt for prompt, _ in lessons.lessons(path, "other")] == ["b"]
    assert queries.count(path) == 3


def test_a_run_keeps_what_it_began_with(tmp_path):
    run = teaching("a", ((0.25, 0.75), (0.5, 0.5)))
    run.generation.prior = Prior((0.5, 0.62), (0.1, 0.2), 7, (0.3,), (((0.5, 0.62), (0.4, 0.1)),))
    with Store(tmp_path / "runs.db") as store:
        store.add(run)
    found = queries.run(tmp_path / "runs.db", 1)
    assert found.generation.prior == run.generation.prior and found.scores == run.scores
