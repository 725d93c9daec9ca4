"""What ``bench --batch-size`` measures, and how it is shown."""

import json

import pytest

from drafters.crowd import Crowd
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.__main__ import main
from multidraft.bench import batches
from multidraft.bench.batches import (
    ALONE,
    BatchFigures,
    SuiteBatch,
    measure_batches,
    render_batches,
    summary_of_batches,
)
from multidraft.bench.runner import SuiteRun
from multidraft.bench.suites import SuiteItem
from multidraft.commands import bench as cli
from multidraft.engine.batch import Batch
from multidraft.engine.decoding import Decoding, generate
from multidraft.engine.experience import new_traffic
from multidraft.service.learning import learn_from
from storage.run import Origin
from tests import tiny

PARAMS = SamplingParams(max_new_tokens=10, draft_length=3)
ITEMS = [SuiteItem(str(i), text) for i, text in enumerate(tiny.texts(4, 20, 3))]
TOO_LONG = SuiteItem("long", "a" * 200)


def test_every_policy_decodes_the_suite_at_every_size(pool):
    runs = list(measure_batches(pool, [TOO_LONG, *ITEMS], ["ucb", "fixed:near"], PARAMS, [1, 3], repeat=2))
    assert len(runs) == 2 * 3 * 3 and (runs[0].policy, runs[0].size) == ("autoregressive", ALONE)
    assert {(r.policy, r.size) for r in runs} == {
        (spec, size) for spec in ("autoregressive", "ucb", "fixed:near") for size in (ALONE, 1, 3)
    }
    assert {r.texts for r in runs} == {len(ITEMS)} and all(r.equal == r.texts and r.seconds > 0 for r in runs)
    plain = [generate(pool, item.prompt, "autoregressive", PARAMS) for item in ITEMS]
    assert {r.tokens for r in runs} == {sum(len(g.token_ids) for g in plain)}
    assert {r.rounds for r in runs if r.policy == "autoregressive"} == {sum(len(g.rounds) for g in plain)}


def test_what_drafts_lost_under_one_policy_keeps_no_other_from_drafting(pool, monkeypatch):
    begun: list[int] = []

    def lost(crowd: Crowd, seconds: float) -> None:
        begun.append(crowd.rounds)
        crowd.rounds = -1000

    monkeypatch.setattr(Crowd, "passed", lost)
    for run in measure_batches(pool, ITEMS, ["ucb", "rate-hedge"], PARAMS, [2], repeat=2):
        assert run.size == ALONE or begun[0] >= -Crowd.PLAIN_ROUNDS
        begun.clear()


def test_batches_that_are_under_way_at_once_do_not_disturb_each_others_stretches(pool):
    one, other = Batch(pool, 2), Batch(pool, 2)
    one.run(Decoding(pool, item.prompt, "ucb", PARAMS) for item in ITEMS)
    passed = one.costs.crowd.rounds
    assert passed > -Crowd.PLAIN_ROUNDS == other.costs.crowd.rounds
    assert one.costs.crowd.plain is other.costs.crowd.plain, "what rounds take without drafts is the pool's"
    later = Batch(pool, 2).costs.crowd  # begins where the last one has come to
    assert (later.rounds, later.lost) == (-Crowd.PLAIN_ROUNDS, [])
    assert one.costs.verify is other.costs.verify is pool.costs.in_batches.verify


def test_policies_begin_with_what_was_known_before_the_first_of_them(pool):
    pool.traffic = new_traffic(pool)
    pool.traffic.learn([("something else", [0.5] * len(pool.drafters))])

    found = []

    def learnt(entries):
        found.extend(entries)
        for entry in entries:
            learn_from(pool, entry.run)

    specs = ["normal-hedge", "ada-normal-hedge"]
    how = {"seed": 0, "origin": Origin("batch"), "waiting": None, "observe": lambda measurement: None}
    suite = SuiteBatch(pool, ITEMS, specs, PARAMS, 2, **how)
    assert len(list(suite.steps(lambda measurement: measurement.steps(), learnt))) > 1
    assert [entry.policy for entry in found] == [spec for spec in specs for _ in ITEMS]
    assert pool.traffic.count == 1 + 2 * len(ITEMS), "the pool goes on learning"
    assert [entry.run.generation.prior.lessons for entry in found] == [1] * 2 * len(ITEMS)
    assert not any(entry.run.generation.prior.repeated for entry in found)


@pytest.mark.parametrize("learn", [True, False])
def test_a_pool_learns_nothing_from_a_warm_up(pool, monkeypatch, learn):
    learnt: list[int] = []
    monkeypatch.setattr(Pool, "learn", lambda pool, lesson, benched: learnt.append(len(lesson.answer)))
    params, origin = SamplingParams(max_new_tokens=20, draft_length=3), Origin("batch", learn=learn)
    how = {"seed": 0, "waiting": None, "observe": lambda measurement: None}
    suite = SuiteBatch(pool, ITEMS, ["ucb"], params, 2, origin=origin, **how)
    list(suite.steps(lambda measurement: measurement.steps(), lambda entries: None))
    assert learnt == [20] * len(ITEMS) * learn
    list(measure_batches(pool, ITEMS, [], params, [2]))
    list(SuiteRun(pool, ITEMS, ["ucb"], SamplingParams(max_new_tokens=2)).all())
    assert learnt[len(ITEMS) * learn :] == [20] * 2 * len(ITEMS) + [2] * len(ITEMS)


def test_a_text_that_differs_is_counted(pool, monkeypatch):
    decode = batches._decode

    def other(batch, pool, items, spec, *rest):
        found, seconds = decode(batch, pool, items, spec, *rest)
        if batch is not None:
            found[0].token_ids[-1] ^= 1
        return found, seconds

    monkeypatch.setattr(batches, "_decode", other)
    assert {(r.size, r.equal) for r in measure_batches(pool, ITEMS, [], PARAMS, [2])} == {(ALONE, 4), (2, 3)}


def test_figures_are_ratios_of_totals():
    runs = [
        BatchFigures("autoregressive", ALONE, 2, 100, 100, 2.0, 2),
        BatchFigures("ucb", ALONE, 2, 100, 40, 1.0, 2),
        BatchFigures("autoregressive", 4, 2, 100, 100, 0.5, 2),
        BatchFigures("ucb", 4, 2, 100, 40, 0.5, 1),
        BatchFigures("ucb", 4, 2, 100, 40, 1.5, 2),
    ]
    summary = summary_of_batches(runs)
    assert [(row["policy"], row["size"], row["tokens_per_second"]) for row in summary] == [
        ("autoregressive", 0, 50.0), ("ucb", 0, 100.0), ("autoregressive", 4, 200.0), ("ucb", 4, 100.0)
    ]  # fmt: skip
    assert [(row["over_batch"], row["over_alone"]) for row in summary] == [
        (1.0, 1.0),
        (2.0, 2.0),
        (1.0, 4.0),
        (0.5, 2.0),
    ]
    table = render_batches(summary)
    assert table.splitlines()[0] == "| policy, tokens/s | alone | batch of 4 | equal outputs |"
    assert table.splitlines()[3] == "| ucb | 100 (2.00x) | 100 (0.50x) | 5/6 |"


def test_sampled_texts_are_not_compared(pool):
    params = SamplingParams(max_new_tokens=10, draft_length=3, temperature=1.0)
    how = {"seed": 0, "origin": Origin("batch"), "waiting": None, "observe": lambda measurement: None}
    suite = SuiteBatch(pool, ITEMS, ["ucb"], params, 2, **how)
    list(suite.steps(lambda measurement: measurement.steps(), lambda entries: None))
    assert [row["equal"] for row in summary_of_batches(suite.figures)] == [None]
    summary = summary_of_batches(list(measure_batches(pool, ITEMS, [], params, [2], repeat=2)))
    assert [(row["texts"], row["equal"]) for row in summary] == [(2 * len(ITEMS), None)] * 2
    assert render_batches(summary).splitlines()[2].endswith("| – |")


def test_the_command_prints_the_table_and_writes_the_report(pool_card, suite, tmp_path, capsys):
    out = tmp_path / "report.json"
    asked = ["bench", str(suite), "--pool", str(pool_card), "--policies", "ucb", "--batch-size", "4,2"]
    assert main([*asked, "--max-new-tokens", "6", "--out", str(out)]) == 0
    assert "| alone | batch of 2 | batch of 4 | equal outputs |" in capsys.readouterr().out
    assert {row["size"] for row in json.loads(out.read_text())["batches"]} == {0, 2, 4}


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (RuntimeError("out of luck"), 1)])
def test_what_was_measured_before_an_error_is_told(pool_card, suite, tmp_path, capsys, monkeypatch, error, status):
    measure, out = cli.measure_batches, tmp_path / "report.json"

    def stopped(*asked, **often):
        runs = measure(*asked, **often)
        yield from (next(runs) for _ in range(3))
        raise error

    monkeypatch.setattr(cli, "measure_batches", stopped)
    asked = ["bench", str(suite), "--pool", str(pool_card), "--policies", "ucb", "--batch-size", "2"]
    assert main([*asked, "--max-new-tokens", "6", "--out", str(out)]) == status
    said, warned = capsys.readouterr()
    assert "| alone | batch of 2 | equal outputs |" in said and said.count("–") == 1
    assert "after 3 of 4 runs" in warned and f"in the table above, the report {out}" in warned
    report = json.loads(out.read_text())
    texts = report["batches"][0]["texts"]
    assert report["interrupted"] and report["runs"] == {"planned": 4 * texts, "done": 3 * texts}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--batch-size", "0"], "whole numbers from 1 to 64"),
        (["--batch-size", "two"], "whole numbers from 1 to 64"),
        (["--batch-size", "65"], "whole numbers from 1 to 64"),
        (["--batch-size", "2", "--peers"], "leave out --peers and --db"),
    ],
)
def test_what_it_does_not_take(pool_card, suite, capsys, options, said):
    assert main(["bench", str(suite), "--pool", str(pool_card), *options]) == 2
    assert said in capsys.readouterr().err
