import json

import pytest

from drafters.pool import Pool, load_pool
from multidraft.engine.lossless import greedy_differences
from multidraft.ui.tabs.play import recorded
from multidraft.ui.widgets import lanes
from storage.run import Run


def form(value: object) -> object:
    """Names and kinds of values, whatever they are; a list has the form of its first one."""
    if isinstance(value, dict):
        return {name: form(item) for name, item in value.items() if name != "texts"}
    if isinstance(value, list):
        return [form(item) for item in value[:1]]
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def test_the_file_is_what_the_command_writes(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "examples", [(recorded.TASK, "abcd")])
    monkeypatch.setattr(recorded, "MAX_NEW_TOKENS", 12)
    monkeypatch.setattr(pool, "traffic", None)  # other tests may have taught it
    text = recorded.FILE.read_text(encoding="utf-8")
    bundled, anew = json.loads(text), json.loads(recorded.text_of(recorded.record(pool)))
    changing = {
        "acceptance_rate",  # none where no round had a draft
        "best_drafter",
        "regret_rounds",
        "best_arm_ratio",
        "drafter_rounds",
        "drafter_shares",
        "libraries",
        "rounds",
        "speedup_uncertainty",
        "baseline_uncertainty",
    }
    for ours, theirs in zip(bundled, anew, strict=True):
        assert form({k: v for k, v in ours.items() if k not in changing}) == form(
            {k: v for k, v in theirs.items() if k not in changing}
        )
        assert [*ours["rounds"][0]] == [*theirs["rounds"][0]]
    assert recorded.text_of([Run.from_json(values) for values in bundled]) == text
    assert [run["policy"] for run in bundled] == ["autoregressive", "rate-hedge"]
    assert [run["lossless"] for run in bundled + anew] == [True] * 4


def test_the_recorded_tokens_are_what_the_target_writes() -> None:
    pool = load_pool(recorded.POOL)
    plain, drafted = recorded.recorded_runs()
    assert plain.generation.token_ids == drafted.generation.token_ids
    prompt = next(prompt for task, prompt in pool.examples if task == recorded.TASK)
    for run in (plain, drafted):
        g = run.generation
        assert g.prompt == prompt and g.status == "stopped" and g.drafters == tuple(d.name for d in pool.drafters)
        assert run.conditions.card_hash == pool.card_hash, "the pool has changed: record it anew"
        assert greedy_differences(pool, pool.encode(prompt), g.token_ids) == []
        assert [r.choices[: r.emitted] for r in g.rounds] == [r.tokens for r in g.rounds]
    assert len({r.drafter for r in drafted.generation.rounds}) > 1, "several drafters are to be seen at work"


def test_it_is_slowed_so_far_that_one_can_follow() -> None:
    data = lanes.replay_data(recorded.recorded_runs(), 5.0)
    assert data["speed"] in lanes.SPEEDS and data["speed"] < 1
