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

from storage import aggregates, queries, ranking
from storage import connection as connections
from storage.connection import open_reader
from storage.figures import ratio_of_totals
from storage.filters import Filter
from storage.run import Baseline
from storage.store import Store
from tests.runs import make_round, make_run

ROUNDS = [make_round(index) for index in range(3)]
"""Nine tokens in 30 ms."""

EVIL = "x' OR 1=1; DROP TABLE runs; --"

TABLES: list[Callable[..., pd.DataFrame]] = [
    aggregates.conditions,
    ranking.policy_summary,
    aggregates.speedup_by_run,
    aggregates.speedup_by_period,
    aggregates.regret_over_time,
    aggregates.best_arm_by_round,
    aggregates.drafter_by_task,
    aggregates.time_by_phase,
    aggregates.latency,
]


def test_filters(filled: Path) -> None:
    assert aggregates.filters(filled) == {
        "pool": ["large", "pocket"],
        "policy": ["hedge", "ucb"],
        "task": ["code", "math"],
        "hardware": ["CPU", "GPU"],
        "version": ["1.0", "1.1"],
        "dtype": ["float32"],
        "card_hash": ["c0ffee"],
        "source": ["bench", "play"],
        "baseline_kind": ["prefix"],
    } | {"draft_length": ["3"], "temperature": ["0.0"], "max_new_tokens": ["6"]}


def test_every_temperature_that_is_offered_finds_its_runs(store: Store) -> None:
    store.add(*(make_run(temperature=temperature) for temperature in (0.0, 1 / 3, 0.1 + 0.2, 0.5)))
    assert store.flush()
    offered = aggregates.filters(store.path)["temperature"]
    assert len(offered) == 4
    assert all(queries.count(store.path, Filter(temperature=each)) == 1 for each in [*offered, "0", ".5"])
    assert all(len(ranking.policy_summary(store.path, Filter(temperature=each))) == 1 for each in offered)


def test_conditions_are_counted_the_most_frequent_first(filled: Path) -> None:
    for filter in (Filter(), Filter(since="2026-01-01")):
        found = aggregates.conditions(filled, filter).fillna({"baseline_kind": "none"})
        rows = found[["pool", "hardware", "version", "baseline_kind", "runs"]].values.tolist()
        assert rows == [
            ["pocket", "CPU", "1.0", "prefix", 3],
            ["large", "GPU", "1.0", "prefix", 1],
            ["pocket", "CPU", "1.0", "none", 1],
            ["pocket", "CPU", "1.1", "none", 1],
        ]


def test_a_race_is_told_by_what_it_was_compared_with(store, path: Path) -> None:
    for kind in ("answer", "prefix"):
        store.add(make_run(source="race", baseline=Baseline(kind, 9, 0.01, 0.0)))
    assert store.flush()
    assert sorted(aggregates.conditions(path)["baseline_kind"]) == ["answer", "prefix"]


def test_policies_are_ranked_by_their_speedup(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.figures.FEWEST_PROMPTS", 3)
    frame = ranking.policy_summary(filled)
    assert list(frame["policy"]) == ["ucb", "hedge"], "one prompt is no rank, however fast it was"
    assert list(frame["runs"]) == [4, 2]
    assert list(frame["speedup"]) == pytest.approx([9 * (1 / 100 + 1 / 300 + 1 / 200) / (3 * 0.03), 2])
    assert frame["request_speedup"][1] == pytest.approx((0.002 + 9 / 150) / (0.003 + 0.03))
    assert list(frame["speedup_runs"]) == [3, 1] and list(frame["speedup_prompts"]) == [3, 1]
    assert list(frame["mean_accepted_tokens"]) == pytest.approx([(9 + 9 + 9 + 1) / 10, 3])
    assert list(frame["acceptance_rate"]) == pytest.approx([18 / 30, 2 / 3])
    assert list(frame["regret_rounds"]) == pytest.approx([3, 1])
    assert list(frame["best_arm_ratio"]) == pytest.approx([(0.5 * 3 + 0.7 * 3) / 6, 0.9])


def test_figures_and_intervals_are_those_of_the_one_definition(store, path: Path) -> None:
    speeds = [100.0, 130.0, 150.0, 170.0, 140.0, 110.0]
    runs = [make_run(prompt=f"{n % 5}", policy="ucb", rounds=ROUNDS, baseline=s) for n, s in enumerate(speeds)]
    for run in runs:
        store.add(run)
    assert store.flush()
    (line,) = ranking.policy_summary(path).to_dict("records")
    prompts = [run.generation.prompt for run in runs]
    above = [run.baseline.decode_seconds(9) for run in runs if run.baseline]
    ratio = ratio_of_totals(above, [run.generation.seconds for run in runs], prompts)
    assert ratio is not None and (line["speedup"], line["speedup_prompts"]) == (pytest.approx(ratio.value), 5)
    # The order of the prompts is that of their hashes here, so other ones are drawn.
    assert (line["speedup_low"], line["speedup_high"]) == pytest.approx((ratio.low, ratio.high), rel=0.03)


def test_two_prompts_have_no_interval(filled: Path) -> None:
    hedge = ranking.policy_summary(filled).set_index("policy").loc["hedge"]
    assert hedge["mean_accepted_tokens_prompts"] == 2
    for name in ("speedup", "mean_accepted_tokens"):
        assert math.isnan(hedge[f"{name}_low"]) and math.isnan(hedge[f"{name}_high"])


def test_ten_runs_of_a_prompt_move_no_mean(store, path: Path) -> None:
    for policy, repeats in (("once", 1), ("often", 10)):
        for prompt, speed, count in (("a", 100.0, repeats), ("b", 300.0, 1), ("c", 200.0, 1)):
            for _ in range(count):
                rounds = ROUNDS[: 1 if prompt == "a" else 3]
                more = {"drafter_rounds": {"code": 1 if prompt == "a" else 9, "math": 3}, "best_drafter": "math"}
                store.add(make_run(prompt=prompt, policy=policy, rounds=rounds, baseline=speed, **more))
    assert store.flush()
    for asked in (ranking.policy_summary, aggregates.time_by_phase):
        once, often = (asked(path, Filter(policy=(p,))).iloc[0] for p in ("once", "often"))
        for name in set(once.index) - {"policy", "runs", "short_runs", *(n for n in once.index if n.endswith("_runs"))}:
            assert once[name] == pytest.approx(often[name], nan_ok=True), name
    tables = [aggregates.drafter_by_task(path, Filter(policy=(p,))) for p in ("once", "often")]
    assert tables[0]["mean_accepted_tokens"].tolist() == pytest.approx(tables[1]["mean_accepted_tokens"].tolist())


def test_policies_are_compared_on_the_prompts_that_all_of_them_ran(store, path: Path, monkeypatch) -> None:
    """``b`` ran on a slow prompt more than ``a``; ``c`` on others, of which two are common."""
    monkeypatch.setattr(ranking, "FEWEST_PROMPTS", 3)
    for policy, prompts in (("a", "pqrs"), ("b", "pqrst"), ("c", "rsxy")):
        for prompt in prompts:
            store.add(make_run(prompt=prompt, policy=policy, rounds=ROUNDS, baseline=600.0 if prompt == "t" else 150.0))
    assert store.flush()
    alone, shared = (ranking.policy_summary(path, Filter(shared=s)).set_index("policy") for s in (False, True))
    assert alone["compared"].all() and not alone["common"].any()
    assert alone.loc["a", "speedup"] == pytest.approx(2) and alone.loc["b", "speedup"] < 1.8
    assert list(shared.index) == ["a", "b", "c"] and shared["compared"].tolist() == [True, True, False]
    assert shared.loc["b", "speedup"] == pytest.approx(2) and (shared["common"] == 4).all()
    assert shared["ran"].tolist() == [4, 4, 2]
    asked = ranking.policy_summary(path, Filter(shared=True, policy=("a", "c")))
    assert asked["compared"].all() and not asked["common"].any(), "two prompts are too few"


def test_plain_decoding_has_no_acceptance(store, path: Path) -> None:
    plain = make_round(0, arm=None, drafter=None, drafted=(), accepted=0, tokens=(9,))
    store.add(make_run(policy="autoregressive", rounds=[plain]))
    assert store.flush()
    (line,) = ranking.policy_summary(path).to_dict("records")
    assert math.isnan(line["acceptance_rate"]) and line["acceptance_rate_prompts"] == 0


def test_policies_without_a_speedup_come_last(filled: Path) -> None:
    (row,) = ranking.policy_summary(filled, Filter(since="2026-01-06")).to_dict("records")
    assert (row["policy"], row["runs"], row["speedup_runs"]) == ("ucb", 1, 0)
    assert math.isnan(row["speedup"]) and math.isnan(row["regret_rounds"])


def test_speedup_by_run(filled: Path) -> None:
    frame = aggregates.speedup_by_run(filled)
    assert list(frame["run_id"]) == [1, 2, 3, 4]  # 5 and 6 have no baseline, 7 was cancelled
    assert list(frame["speedup"]) == pytest.approx([3, 2, 1, 1.5])
    assert frame["created_at"][0] == pd.Timestamp(2026, 1, 1, tz=UTC)
    assert list(frame["policy"][:3]) == ["ucb", "hedge", "ucb"]
    assert frame["tokens_per_second"][0] == pytest.approx(300)


def test_answers_of_a_few_tokens_have_no_speedup_and_are_counted(store, path: Path) -> None:
    long, short = [make_round(index) for index in range(3)], [make_round(0)]
    for rounds in (long, short, short):
        store.add(make_run(policy="ucb", rounds=rounds, baseline=150.0))
    store.add(make_run(policy="ucb", rounds=short, status="cancelled"))
    assert store.close()
    (line,) = ranking.policy_summary(path).to_dict("records")
    assert (line["runs"], line["short_runs"], line["speedup_runs"]) == (3, 2, 1)
    assert line["speedup"] == pytest.approx(2)
    assert list(aggregates.speedup_by_run(path)["speedup"]) == pytest.approx([2])
    assert list(aggregates.speedup_by_period(path)["runs"]) == [1]
    assert queries.listed(path)["speedup"].isna().sum() == 3


def test_speedup_by_period(filled: Path) -> None:
    """Runs of ``ucb`` on the days 1, 3 and 4, in two periods of a day and a half each."""
    frame = aggregates.speedup_by_period(filled, periods=2)
    ucb = frame[frame["policy"] == "ucb"]
    assert list(ucb["runs"]) == [1, 2]
    assert list(ucb["speedup"]) == pytest.approx([3, (1 / 300 + 1 / 200) * 9 / 0.06])
    assert list(ucb["created_at"].dt.round("min")) == [
        pd.Timestamp("2026-01-01", tz="UTC"),
        pd.Timestamp("2026-01-03T12:00", tz="UTC"),
    ]
    assert len(aggregates.speedup_by_period(filled, Filter(until="2026-01-02"))) == 1  # no time passes within one run


def test_regret_over_time(filled: Path) -> None:
    frame = aggregates.regret_over_time(filled)
    assert frame.pop("created_at").str[:4].tolist() == ["2026"] * 3
    assert frame.values.tolist() == [["hedge", 1, 1, 1], ["ucb", 1, 4, 4], ["ucb", 2, 2, 6]]


def test_regret_of_many_runs_is_thinned_but_summed_over_all(store, path: Path) -> None:
    for regret in range(7):
        store.add(make_run(policy="ucb", regret_rounds=regret))
    assert store.flush()
    frame = aggregates.regret_over_time(path, points=3)
    assert frame[["run_number", "cumulative_regret"]].values.tolist() == [[3, 3], [6, 15], [7, 21]]


def test_best_arm_by_round(store, path: Path) -> None:
    """``math`` is best: played by two of two runs, then by one of the two that drafted, then by the longer one."""
    code = {"arm": 0, "drafter": "code"}
    none = {"arm": None, "drafter": None, "drafted": (), "accepted": 0}
    store.add(make_run(policy="ucb", rounds=[make_round(0), make_round(1, **code)], best_drafter="math"))
    store.add(make_run(policy="ucb", rounds=[make_round(i) for i in range(3)], best_drafter="math"))
    store.add(make_run(policy="ucb", rounds=[make_round(0), make_round(1, **none)], best_drafter="math"))
    store.add(make_run(policy="ucb"))  # a sampled run: there is no best arm
    store.add(make_run(policy="ucb", status="cancelled", best_drafter="code"))
    assert store.flush()
    assert aggregates.best_arm_by_round(path).values.tolist() == [
        ["ucb", 1, 1.0, 3],
        ["ucb", 2, 0.5, 2],
        ["ucb", 3, 1.0, 1],
    ]
    assert list(aggregates.best_arm_by_round(path, rounds=1)["round"]) == [1]


def test_drafter_by_task(store, path: Path) -> None:
    """Six tokens a run: totals of tokens over totals of rounds, whoever was played."""
    for number, (card, task, needed) in enumerate(
        (
            ("one", "math", {"code": 6, "math": 2}),
            ("one", "math", {"code": 4, "math": 2}),
            ("two", None, {"code": 3}),
            ("two", "math", {"code": 2}),
        )
    ):
        store.add(make_run(task=task, card_hash=card, prompt=f"{number}", drafter_rounds=needed))
    store.add(make_run(task="sql"))  # a sampled run: not known
    store.add(make_run(status="cancelled", task="math", drafter_rounds={"code": 1}))
    assert store.flush()
    assert aggregates.drafter_by_task(path).values.tolist() == [
        ["code", "math", 3, 18 / 12],
        ["code", aggregates.NO_TASK, 1, 2.0],
        ["math", "math", 2, 3.0],
    ]
    assert aggregates.drafter_by_task(path, Filter(task=("math",)))["runs"].tolist() == [3, 2]


def test_time_by_phase(filled: Path) -> None:
    """Three rounds a run of 1 ms of drafting, 6 of verification, 2 of the policy, 1 of evaluation; run 6 has one."""
    frame = aggregates.time_by_phase(filled).set_index("policy")
    assert list(frame["runs"]) == [2, 4]
    assert list(frame["verify_seconds"]) == pytest.approx([0.036, 0.06])
    assert list(frame["output_tokens"]) == [18, 28]
    parts = [f"{phase}_seconds" for phase in ("draft", "verify", "policy", "evaluate")]
    assert frame.loc["hedge", parts].sum() == pytest.approx(0.06)


def test_latency(filled: Path) -> None:
    """Three runs of ``ucb`` make nine tokens in 30 ms, one a token in 10 ms."""
    frame = aggregates.latency(filled).set_index("policy")
    assert list(frame["runs"]) == [2, 4]
    assert frame.loc["ucb", "token_p50"] == pytest.approx(0.02 / 6)
    assert frame.loc["ucb", "token_p99"] == pytest.approx(0.02 / 6 + 0.97 * (0.01 - 0.02 / 6))
    assert frame.loc["hedge", "first_p90"] == pytest.approx(0.003)


def test_runs_beside_others_are_in_no_figure_of_time(store, path: Path) -> None:
    """Of two runs one was decoded in a batch: without a baseline, and with rounds that held the others' too."""
    store.add(make_run(rounds=ROUNDS))
    store.add(make_run(rounds=ROUNDS, streams=4, baseline=None))
    assert store.flush()
    alone, beside = (queries.run(path, id) for id in (1, 2))
    assert alone and beside and alone.tokens_per_second == pytest.approx(300) and beside.tokens_per_second is None
    for table in (aggregates.time_by_phase, aggregates.latency, aggregates.speedup_by_run):
        frame = table(path)
        assert len(frame) == 1 and frame.get("runs", pd.Series([1]))[0] == 1
    summary = ranking.policy_summary(path)
    assert (summary["runs"][0], summary["speedup_runs"][0], summary["mean_accepted_tokens_runs"][0]) == (2, 1, 2)
    assert queries.listed(path)["tokens_per_second"].notna().tolist() == [False, True]
    made_on = alone.conditions
    assert queries.ids_on(path, made_on.card_hash, made_on.hardware, made_on.dtype) == [1]


@pytest.mark.parametrize("table", TABLES)
def test_nothing_there(filled: Path, tmp_path: Path, table: Callable[..., pd.DataFrame]) -> None:
    path = tmp_path / "other.db"
    frame = table(path)
    assert frame.empty
    assert list(frame.columns) == list(table(filled).columns)
    assert not any(aggregates.filters(path).values())
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

    for module in (aggregates, connections):
        monkeypatch.setattr(module, "open_reader", traced)
    table(filled, Filter(pool="pocket", policy=("ucb", "hedge")))
    plans = [
        row[-1]
        for sql in asked
        if "FROM run" in sql
        for row in sqlite3.connect(filled).execute(f"EXPLAIN QUERY PLAN {sql}")
    ]
    assert plans
    touched = [plan for plan in plans if plan.startswith(("SCAN", "SEARCH"))]
    allowed = ("COVERING INDEX idx_runs_dashboard", "SCAN (subquery", "run_counts", "idx_run_counts")
    # One figure of each run, where they are few enough to be drawn, or of too few prompts for an interval.
    allowed += ("SEARCH own USING INTEGER PRIMARY KEY",)
    assert all(any(name in plan for name in allowed) for plan in touched), plans


@pytest.mark.parametrize(
    "filter",
    [
        *(Filter(pool=EVIL), Filter(policy=(EVIL,)), Filter(task=("math", EVIL)), Filter(card_hash=EVIL)),
        *(Filter(batch_id=(EVIL,)), Filter(id=(0,))),  # of which counts of runs tell nothing
    ],
)
def test_filters_are_values_not_sql(filled: Path, filter: Filter) -> None:
    expected = 2 if filter.task else 0  # of tasks, the harmless one still matches
    ucb = Filter(policy=("ucb",), task=filter.task) if filter.task else filter
    assert len(aggregates.speedup_by_run(filled, ucb)) == expected
    for table in TABLES:
        table(filled, filter)
    assert queries.count(filled) == 7
