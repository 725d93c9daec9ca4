"""What charts read: on a small database whose answers are known, on none, and by the dashboard's index only."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from storage import figures, queries
from storage.connection import open_reader
from storage.filters import Filter

EVIL = "x' OR 1=1; DROP TABLE runs; --"

TABLES: list[Callable[..., pd.DataFrame]] = [
    figures.conditions,
    figures.policy_summary,
    figures.speedup_by_run,
    figures.speedup_by_period,
    figures.regret_over_time,
    figures.best_arm_by_round,
    figures.drafter_by_task,
    figures.time_by_phase,
    figures.latency,
]


def test_filters(filled: Path) -> None:
    assert figures.filters(filled) == {
        "pools": ["large", "pocket"],
        "policies": ["hedge", "ucb"],
        "tasks": ["code", "math"],
        "hardware": ["CPU", "GPU"],
        "versions": ["1.0", "1.1"],
        "dtypes": ["float32"],
        "cards": ["c0ffee"],
        "sources": ["bench", "play"],
    }


def test_conditions_are_counted_the_most_frequent_first(filled: Path) -> None:
    for filter in (Filter(), Filter(since="2026-01-01")):
        rows = figures.conditions(filled, filter)[["pool", "hardware", "version", "source", "runs"]].values.tolist()
        assert rows == [
            ["pocket", "CPU", "1.0", "play", 4],
            ["large", "GPU", "1.0", "bench", 1],
            ["pocket", "CPU", "1.1", "play", 1],
        ]


def test_policies_are_ranked_by_their_mean_speedup(filled: Path) -> None:
    frame = figures.policy_summary(filled)
    assert list(frame["policy"]) == ["ucb", "hedge"], "one run is no rank, however fast it was"
    assert list(frame["runs"]) == [4, 2]
    assert list(frame["speedup"]) == pytest.approx([(3 * 1 * 1.5) ** (1 / 3), 2])
    assert list(frame["speedup_runs"]) == [3, 1]
    assert list(frame["mean_accepted_tokens"]) == pytest.approx([(3 + 3 + 3 + 1) / 4, 3])
    assert list(frame["acceptance_rate"]) == pytest.approx([0.5, 2 / 3])
    assert list(frame["regret_rounds"]) == pytest.approx([3, 1])
    assert list(frame["best_arm_ratio"]) == pytest.approx([0.6, 0.9])


def test_intervals_are_those_of_students_t(filled: Path) -> None:
    ucb = figures.policy_summary(filled).set_index("policy").loc["ucb"]
    low, high = stats.t.interval(0.95, 3, loc=2.5, scale=stats.sem([3, 3, 3, 1]))
    assert low < 1  # where no mean can lie
    assert (ucb["mean_accepted_tokens_low"], ucb["mean_accepted_tokens_high"]) == pytest.approx((1, high))
    logs = [math.log(x) for x in (3, 1, 1.5)]
    low, high = stats.t.interval(0.95, 2, loc=sum(logs) / 3, scale=stats.sem(logs))
    assert (ucb["speedup_low"], ucb["speedup_high"]) == pytest.approx((math.exp(low), math.exp(high)))


def test_two_runs_have_no_interval(filled: Path) -> None:
    hedge = figures.policy_summary(filled).set_index("policy").loc["hedge"]
    assert hedge["mean_accepted_tokens_runs"] == 2
    for name in ("speedup", "mean_accepted_tokens"):
        assert math.isnan(hedge[f"{name}_low"]) and math.isnan(hedge[f"{name}_high"])


def test_intervals_end_where_no_value_can_lie(store, path: Path, generation, context, round_of) -> None:
    """Of shares of 0, 1 and 1, Student's t alone would make -77 % to 210 %."""
    rejected = round_of(0, accepted=0, tokens=(9,))
    accepted = round_of(0, accepted=3, tokens=(5, 6, 7, 9))
    for ratio, played in ((0.0, rejected), (1.0, accepted), (1.0, accepted)):
        store.add(generation(policy="ucb", rounds=[played]), context(best_arm_ratio=ratio, regret_rounds=ratio))
    assert store.flush()
    (line,) = figures.policy_summary(path).to_dict("records")
    for name in ("acceptance_rate", "best_arm_ratio"):
        assert (line[f"{name}_low"], line[f"{name}_high"]) == (0, 1) and line[name] == pytest.approx(2 / 3)
    assert line["mean_accepted_tokens_low"] == 1 and line["mean_accepted_tokens_high"] > 4
    assert line["regret_rounds_low"] < 0  # which can lie below


def test_plain_decoding_has_no_acceptance(store, path: Path, generation, context, round_of) -> None:
    plain = round_of(0, arm=None, drafter=None, drafted=(), accepted=0, tokens=(9,))
    store.add(generation(policy="autoregressive", rounds=[plain]), context())
    assert store.flush()
    (line,) = figures.policy_summary(path).to_dict("records")
    assert line["acceptance_rate_runs"] == 0 and math.isnan(line["acceptance_rate"])


def test_policies_without_a_speedup_come_last(filled: Path) -> None:
    (row,) = figures.policy_summary(filled, Filter(since="2026-01-06")).to_dict("records")
    assert (row["policy"], row["runs"], row["speedup_runs"]) == ("ucb", 1, 0)
    assert math.isnan(row["speedup"]) and math.isnan(row["regret_rounds"])


def test_speedup_by_run(filled: Path) -> None:
    frame = figures.speedup_by_run(filled)
    assert list(frame["run_id"]) == [1, 2, 3, 4]  # 5 and 6 have no baseline, 7 was cancelled
    assert list(frame["speedup"]) == pytest.approx([3, 2, 1, 1.5])
    assert frame["created_at"][0] == pd.Timestamp(2026, 1, 1, tz=UTC)
    assert list(frame["policy"][:3]) == ["ucb", "hedge", "ucb"]
    assert frame["tokens_per_second"][0] == pytest.approx(300)


def test_answers_of_a_few_tokens_have_no_speedup_and_are_counted(
    store, path: Path, generation, context, round_of
) -> None:
    """Whatever earlier versions recorded of them."""
    long, short = [round_of(index) for index in range(3)], [round_of(0)]
    for rounds in (long, short, short):
        store.add(generation(policy="ucb", rounds=rounds), context(baseline_tokens_per_second=150.0))
    store.add(generation(policy="ucb", rounds=short, status="cancelled"), context())
    assert store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET speedup = 5.91 WHERE output_tokens = 3")
    (line,) = figures.policy_summary(path).to_dict("records")
    assert (line["runs"], line["short_runs"], line["speedup_runs"]) == (3, 2, 1)
    assert line["speedup"] == pytest.approx(2)
    assert list(figures.speedup_by_run(path)["speedup"]) == pytest.approx([2])
    assert list(figures.speedup_by_period(path)["runs"]) == [1]
    assert queries.listed(path)["speedup"].isna().sum() == 3


def test_speedup_by_period(filled: Path) -> None:
    """Runs of ``ucb`` on the days 1, 3 and 4, in two periods of a day and a half each."""
    frame = figures.speedup_by_period(filled, periods=2)
    ucb = frame[frame["policy"] == "ucb"]
    assert list(ucb["runs"]) == [1, 2]
    assert list(ucb["speedup"]) == pytest.approx([3, math.sqrt(1.5)])
    assert list(ucb["created_at"].dt.round("min")) == [
        pd.Timestamp("2026-01-01", tz="UTC"),
        pd.Timestamp("2026-01-03T12:00", tz="UTC"),
    ]
    assert len(figures.speedup_by_period(filled, Filter(until="2026-01-02"))) == 1  # no time passes within one run


def test_regret_over_time(filled: Path) -> None:
    frame = figures.regret_over_time(filled)
    assert frame.values.tolist() == [["hedge", 1, 1, 1], ["ucb", 1, 4, 4], ["ucb", 2, 2, 6]]


def test_regret_of_many_runs_is_thinned_but_summed_over_all(store, path: Path, generation, context) -> None:
    for regret in range(7):
        store.add(generation(policy="ucb"), context(regret_rounds=regret))
    assert store.flush()
    frame = figures.regret_over_time(path, points=3)
    assert frame[["run_number", "cumulative_regret"]].values.tolist() == [[3, 3], [6, 15], [7, 21]]


def test_best_arm_by_round(store, path: Path, generation, context, round_of) -> None:
    """``math`` is best: played by two of two runs, then by one of the two that drafted, then by the longer one."""
    code = {"arm": 0, "drafter": "code"}
    none = {"arm": None, "drafter": None, "drafted": (), "accepted": 0}
    store.add(generation(policy="ucb", rounds=[round_of(0), round_of(1, **code)]), context(best_arm="math"))
    store.add(generation(policy="ucb", rounds=[round_of(i) for i in range(3)]), context(best_arm="math"))
    store.add(generation(policy="ucb", rounds=[round_of(0), round_of(1, **none)]), context(best_arm="math"))
    store.add(generation(policy="ucb"), context())  # a sampled run: there is no best arm
    store.add(generation(policy="ucb", status="cancelled"), context(best_arm="code"))
    assert store.flush()
    assert figures.best_arm_by_round(path).values.tolist() == [
        ["ucb", 1, 1.0, 3],
        ["ucb", 2, 0.5, 2],
        ["ucb", 3, 1.0, 1],
    ]
    assert list(figures.best_arm_by_round(path, rounds=1)["round"]) == [1]


def test_drafter_by_task(store, path: Path, generation, context) -> None:
    """Six tokens a run: totals of tokens over totals of rounds, whoever was played."""
    for card, task, needed in (
        ("one", "math", {"code": 6, "math": 2}),
        ("one", "math", {"code": 4, "math": 2}),
        ("two", None, {"code": 3}),
        ("two", "math", {"code": 2}),
    ):
        store.add(generation(), context(task=task, card_hash=card, drafter_rounds=needed))
    store.add(generation(), context(task="sql"))  # a sampled run: not known
    store.add(generation(status="cancelled"), context(task="math", drafter_rounds={"code": 1}))
    assert store.flush()
    assert figures.drafter_by_task(path).values.tolist() == [
        ["code", "math", 3, 18 / 12],
        ["code", figures.NO_TASK, 1, 2.0],
        ["math", "math", 2, 3.0],
    ]
    assert figures.drafter_by_task(path, Filter(tasks=("math",)))["runs"].tolist() == [3, 2]


def test_time_by_phase(filled: Path) -> None:
    """Three rounds a run of 1 ms of drafting, 6 of verification, 2 of the policy, 1 of evaluation; run 6 has one."""
    frame = figures.time_by_phase(filled).set_index("policy")
    assert list(frame["runs"]) == [2, 4]
    assert list(frame["verify_seconds"]) == pytest.approx([0.036, 0.06])
    assert list(frame["output_tokens"]) == [18, 28]
    parts = [f"{phase}_seconds" for phase in ("draft", "verify", "policy", "evaluate")]
    assert frame.loc["hedge", parts].sum() == pytest.approx(0.06)


def test_latency(filled: Path) -> None:
    """Three runs of ``ucb`` make nine tokens in 30 ms, one a token in 10 ms."""
    frame = figures.latency(filled).set_index("policy")
    assert list(frame["runs"]) == [2, 4]
    assert frame.loc["ucb", "token_p50"] == pytest.approx(0.02 / 6)
    assert frame.loc["ucb", "token_p99"] == pytest.approx(0.02 / 6 + 0.97 * (0.01 - 0.02 / 6))
    assert frame.loc["hedge", "first_p90"] == pytest.approx(0.003)


@pytest.mark.parametrize("table", TABLES)
def test_nothing_there(filled: Path, tmp_path: Path, table: Callable[..., pd.DataFrame]) -> None:
    path = tmp_path / "other.db"
    frame = table(path)
    assert frame.empty
    assert list(frame.columns) == list(table(filled).columns)
    assert not any(figures.filters(path).values())
    assert not path.exists()


@pytest.mark.parametrize("table", TABLES)
def test_charts_read_the_dashboards_index_only(
    filled: Path, table: Callable[..., pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking up rounds or texts would cost seconds in a large history."""
    asked: list[str] = []

    @contextmanager
    def traced(path: Path) -> Iterator[sqlite3.Connection]:
        with open_reader(path) as connection:
            connection.set_trace_callback(asked.append)
            yield connection

    monkeypatch.setattr(figures, "open_reader", traced)
    table(filled, Filter(pool="pocket", policies=("ucb", "hedge")))
    plans = [
        row[-1]
        for sql in asked
        if "FROM run" in sql
        for row in sqlite3.connect(filled).execute(f"EXPLAIN QUERY PLAN {sql}")
    ]
    assert plans
    touched = [plan for plan in plans if plan.startswith(("SCAN", "SEARCH"))]
    allowed = ("COVERING INDEX idx_runs_dashboard", "SCAN (subquery", "run_counts", "idx_run_counts")
    assert all(any(name in plan for name in allowed) for plan in touched), plans


@pytest.mark.parametrize(
    "filter",
    [Filter(pool=EVIL), Filter(policies=(EVIL,)), Filter(tasks=("math", EVIL)), Filter(card=EVIL)],
)
def test_filters_are_values_not_sql(filled: Path, filter: Filter) -> None:
    expected = 2 if filter.tasks else 0  # of tasks, the harmless one still matches
    ucb = Filter(policies="ucb", tasks=filter.tasks) if filter.tasks else filter
    assert len(figures.speedup_by_run(filled, ucb)) == expected
    for table in TABLES:
        table(filled, filter)
    assert queries.count(filled) == 7
