"""The scripts that measure our own overhead still run; what they measure is not judged here."""

import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from drafters import traffic
from drafters.base import Acceptances
from drafters.card import load_card
from drafters.checkpoints.loading import tokenizer_of
from drafters.costs import Costs
from drafters.retrieval.datastore import build_datastore
from multidraft.policies import POLICIES, likeness, pair_costs, rate_hedge
from multidraft.replay.recorded import Recorded
from multidraft.ui.tabs.dashboard.views import CHARTS
from storage import queries, ranking
from tests.browser.test_endpoints import elsewhere
from tests.history import recorded
from tests.multidraft.conftest import RECORDED
from tests.perf import (
    commits,
    dashboard,
    disturbed,
    forwards,
    graphs,
    lookups,
    policies,
    retrieval,
    self_comparison,
    sensitivity,
    streaming,
    student,
    traffic_stream,
    unions,
)
from tests.runs import make_run


def test_policies(capsys: pytest.CaptureFixture[str]) -> None:
    policies.main(["--drafters", "3", "--draft-length", "2", "--rounds", "20", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert set(rows) == set(POLICIES)
    assert all(row["microseconds"] > 0 and row["replay_milliseconds"] > 0 for row in rows.values())


def test_forwards(pool_card: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwards, "CACHED", 4)
    monkeypatch.setattr(forwards, "REPEATS", 2)
    forwards.main(["--pool", str(pool_card), "--drafter", "near", "--prompt", "abc abd"])
    printed = capsys.readouterr().out
    assert printed.count("| ONNX Runtime |") == 2 and "| fixed:near |" in printed


def test_disturbed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    true = Costs.uniform(2, 4, step=0.1, verify=1.0)
    meter = disturbed.warm(true, ["lm", "lm"], 4)
    assert disturbed.disturbed(meter, "nothing", 1.0).costs(4).verify == pytest.approx(meter.costs(4).verify)
    slow = disturbed.disturbed(meter, "drafts and verification", 3.0).costs(4)
    assert slow.draft_step == pytest.approx(3.0 * meter.costs(4).draft_step)
    assert slow.verify[1:] == pytest.approx(3.0 * meter.costs(4).verify[1:])
    since = disturbed.disturbed(meter, disturbed.SINCE, 3.0).costs(4)
    assert 3.0 * since.verify == pytest.approx(meter.costs(4).verify)
    assert 3.0 * since.evaluate == pytest.approx(meter.costs(4).evaluate)
    long = disturbed.disturbed(meter, "long verifications", 3.0).costs(4)
    assert long.draft_step == pytest.approx(meter.costs(4).draft_step)
    assert long.verify[4] / long.verify[1] > 1.2 * meter.costs(4).verify[4] / meter.costs(4).verify[1]
    run = make_run(acceptance=Acceptances(*(np.full((2, 9), 4) for _ in range(3))))
    run.generation.drafters = ("a", "b")
    rounds, seconds = disturbed.measure([Recorded(run, true)], "metered", meter)
    assert 2 <= rounds < 9 and seconds >= 1.1 * rounds, "by the true costs"
    for holder, name, values in disturbed.CONSTANTS:
        assert getattr(holder, name) not in values
    path = tmp_path / "bench.db"
    path.write_bytes(lzma.decompress(RECORDED.read_bytes()))
    monkeypatch.setattr(disturbed, "FACTORS", (4.0,))
    monkeypatch.setattr(disturbed, "DISTURBED", ("drafts, long ones too",))
    monkeypatch.setattr(disturbed, "CONSTANTS", ())
    disturbed.main(path, 30)
    assert capsys.readouterr().out.count("| drafts, long ones too | 4 |") == 1


def test_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    graphs.main(["--tiny", "--device", "cpu", "--repeats", "2"])
    printed = capsys.readouterr().out
    assert "tiny shapes" in printed and "each by its own" in printed and "transformers: drafter" in printed


def test_lookups(pool_card: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, store = tmp_path / "text.txt", tmp_path / "text.store"
    text.write_text("abcdefg hi " * 300)
    build_datastore(store, [text], tokenizer_of(load_card(pool_card)[0].target, pool_card))
    lookups.main([str(store), "--pool", str(pool_card)])
    printed = capsys.readouterr().out
    assert printed.count("| rest |") == 2 and printed.count("| suffix |") == 2


def test_retrieval() -> None:
    loop = [([1, 2, 3, 4], [1, 2, 3, 4, 1, 2, 3, 5])]
    found = {name: retrieval.walk(loop, begin, rule, 4) for name, begin, rule in retrieval.rules()}
    assert found["transformers, 2 tokens"] == (8 / 3, 8 / 3)  # nothing, then twice what followed, all of it
    assert found["ArcticInference"][0] == 8 / 4  # nothing, 2, then 3 of 4, and what is left
    assert set(found) > {"`pld`", "`suffix`", "`suffix`, past answers"}


def test_student(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(student, "MIXED", ("rate-hedge",))
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps({"question": f"How much is {n} and 3?"}) for n in range(4)))
    student.main([str(prompts), "--old", "2", "--block", "2", "--max-new-tokens", "6"])
    printed = capsys.readouterr().out
    assert printed.count("not learning:") == 2 and "old tasks after" in printed and "of them training" in printed


def test_a_live_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_stream, "MOST_TOKENS", 32)
    traffic_stream.write_prompts(prompts := tmp_path / "stream.jsonl", 2)
    traffic_stream.live(prompts, path := tmp_path / "live.db", "pocket:without=code,json,sql,summary")
    assert "÷ from the router, second half: decode " in capsys.readouterr().out
    again, first = (run for run in recorded(path) if run.generation.policy == "rate-hedge")
    assert first.generation.prior is None and again.generation.prior, "taught by the first prompt, not by the router"


def test_sensitivity() -> None:
    usual = rate_hedge.SPAN
    with pytest.raises(KeyError), sensitivity.changed("SPAN", 16):
        assert rate_hedge.SPAN == 16
        raise KeyError
    assert usual == rate_hedge.SPAN and usual not in sensitivity.CONSTANTS["SPAN"]
    for name in sensitivity.SETTINGS:
        assert name in rate_hedge.RateHedge.Settings.model_fields
    held = {**vars(rate_hedge), **vars(pair_costs), **vars(likeness)} | {
        name: getattr(traffic, name) for name in ("SIMILAR", "ROUTED", "ALIKE")
    }
    numbers = {name for name, value in held.items() if name.isupper() and isinstance(value, int | float)}
    assert set(sensitivity.CONSTANTS) == numbers - {"NO_DRAFTER"}, "each number that stays has its line in the table"
    with sensitivity.changed("STRETCH", 16):
        assert traffic.STRETCH == likeness.STRETCH == 16


def test_unions() -> None:
    table = Acceptances(np.array([[3, 0], [1, 4]]), np.array([[4, 4], [2, 4]]), np.array([[4, 4], [2, 4]]))
    run = make_run(acceptance=table)
    run.generation.drafters = ("a", "b")
    found = unions.with_union(Recorded(run, Costs.uniform(2, 4, step=0.5, verify=1.0)), "a", "b", 2)
    assert found.drafters == ("a", "b", "a+b:2")
    assert found.table.accepted[2].tolist() == [3, 2], "as far as the better one, b no further than 2 tokens"
    assert found.table.nodes[2].tolist() == [4 + 2 - 1, 4 + 2], "one node is right in both"
    assert found.costs.drafting(2, 4) == 4 * 0.5 + 2 * 0.5, "both draft"


def test_dashboard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "large.db"
    dashboard.main(["--runs", "30", "--rounds", "6", "--keep", str(path), "--json"])
    views = json.loads(capsys.readouterr().out)["milliseconds"]
    assert {chart.title for chart in CHARTS} | {"filters and ranking", "one run"} < set(views)
    assert all(times["first"] > 0 and times["again"] > 0 for times in views.values())
    run = queries.run(path, 30)
    assert queries.count(path) == 30 and len(ranking.policy_summary(path)) > 2
    stored = queries.columns_of(path, [30], ["round_count", "output_tokens", "decode_seconds"])[30]
    assert run is not None and len(run.generation.rounds) == stored["round_count"]
    assert len(run.generation.token_ids) == stored["output_tokens"]
    assert run.generation.seconds == pytest.approx(stored["decode_seconds"])


def test_self_comparison(pool_card: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = tmp_path / "suite.txt"
    suite.write_text("abc abd\nbcd\n")
    asked = ["--pool", str(pool_card), "--suite", str(suite), "--visits", "2", "--max-new-tokens", "12", "--json"]
    status = self_comparison.main(asked)
    measured = json.loads(capsys.readouterr().out)
    assert len(measured["speedups"]) <= 2 and min(measured["speedups"], default=1.0) > 0
    assert measured["covered"] <= measured["intervals"] <= 2
    assert status == (0 if measured["quiet"] else 1)
    assert self_comparison.within([0.9, 0.94, 1.0, 1.08]) == 2


def test_commits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commits.main(["--folder", str(tmp_path), "--before", "2", "--runs", "2", "--rounds", "3", "--json"])
    measured = json.loads(capsys.readouterr().out)
    assert list(measured) == ["begin", "end", "emptying the log"] and min(map(min, measured.values())) > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_streaming(pool_card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--pool", str(pool_card), "--prompt", "abc abd", "--max-new-tokens", "20", "--visits", "1"]
    elsewhere(streaming.main, [*arguments, "--json"])
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert measured["tokens"] == 20 and len(measured["alone"]) == len(measured["watched"]) == 1
    assert measured["cost"] == pytest.approx(1 - measured["watched"][0] / measured["alone"][0])
    assert measured["paints"][0] > 0 and measured["cpu_alone"][0] > 0 and measured["cpu_watched"][0] > 0


def test_cost_and_interval_come_from_the_pairs() -> None:
    watched = [90.0, 95.0, 80.0, 100.0, 85.0, 99.0, 91.0]
    cost = streaming.StreamingCost([100.0] * 7, watched, [1.0] * 7, [1.0] * 7, [2.0] * 7, 20)
    assert cost.cost == pytest.approx(0.09)
    low, high = cost.interval or (1.0, 0.0)
    assert (low, high) == pytest.approx((0.0, 0.20)), "of seven pairs all are needed for 95 %"
    assert streaming.StreamingCost([1.0], [1.0], [1.0], [1.0], [1.0], 1).interval is None
