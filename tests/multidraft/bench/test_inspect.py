"""What ``pool`` prints: costs that were measured, accepted tokens that follow from real generations."""

import pytest

from drafters.draft import Draft
from drafters.sampling import SamplingParams
from multidraft.bench import inspect
from multidraft.bench.inspect import accepted_by_task, describe_pool, render_matrix
from multidraft.bench.suites import SuiteItem
from multidraft.engine.decoding import generate
from tests import tiny

GREEDY = SamplingParams(24, draft_length=4)
ITEMS = [SuiteItem(str(i), text, "even" if i % 2 == 0 else "odd") for i, text in enumerate(tiny.texts(6, 50, 3))]


def test_a_pool_is_described_by_what_is_in_it(pool):
    content = describe_pool(pool)
    assert content["target"]["parameters"] == pool.target.model.num_parameters()
    assert content["context_window"] == pool.target.window == tiny.WINDOW
    assert 0 < content["target"]["step_ms"] < 1000 and 0 < content["target"]["verify_ms"] < 1000
    assert [(d["name"], d["kind"]) for d in content["drafters"]] == [
        ("near", "lm"),
        ("lookup", "pld"),
        ("far", "lm"),
        ("alone", "lm"),
    ]
    assert all(d["draft_step_ms"] > 0 for d in content["drafters"])


def test_what_a_tree_of_drafts_takes_is_shared_by_its_depth(pool, monkeypatch):
    monkeypatch.setattr(inspect, "_milliseconds", lambda pool, action: 6.0)
    chain, tree = Draft.chain([1, 2, 3]), Draft((1, 2, 3, 4, 5), (-1, -1, 0, 1, 2))
    for drafter, draft in zip(pool.drafters, (chain, tree, Draft.empty(), chain), strict=True):
        monkeypatch.setattr(drafter, "propose", lambda *given, draft=draft: draft)
    assert [drafter["draft_step_ms"] for drafter in describe_pool(pool)["drafters"]] == [2.0, 2.0, 6.0, 2.0]


def test_the_matrix_is_what_each_drafter_really_reaches(pool):
    matrix = accepted_by_task(pool, ITEMS, GREEDY)
    assert list(matrix) == ["even", "odd"]
    for task, row in matrix.items():
        for name, value in row.items():
            outs = [generate(pool, i.prompt, f"fixed:{name}", GREEDY) for i in ITEMS if i.task == task]
            tokens, rounds = (sum(len(x) for x in xs) for xs in ([o.token_ids for o in outs], [o.rounds for o in outs]))
            assert value == pytest.approx(tokens / rounds), (task, name)


def test_prompts_over_the_window_are_left_out(pool):
    long = SuiteItem("long", "a" * 200, "long")
    assert list(accepted_by_task(pool, [*ITEMS, long], GREEDY)) == ["even", "odd"]


def test_the_best_of_each_task_is_marked():
    table = render_matrix({"math": {"a": 3.0, "b": 1.25}, "code": {"a": 1.999, "b": 2.0}})
    assert table.splitlines() == [
        "| drafter | math | code |",
        "| --- | --- | --- |",
        "| a | 3.00* | 2.00* |",
        "| b | 1.25 | 2.00* |",
    ]
