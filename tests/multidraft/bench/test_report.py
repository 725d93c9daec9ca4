"""The report: totals that can be checked by hand, and a table."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from statistics import mean
from types import SimpleNamespace

import pytest
import torch

import multidraft as md
from drafters.hardware import describe
from drafters.sampling import SamplingParams
from multidraft.bench.report import Asked, best_drafters, make_report
from multidraft.bench.runner import Entry, SuiteRun
from multidraft.bench.suites import SuiteItem
from multidraft.bench.summary import Figures, Row
from multidraft.bench.table import COLUMNS, notes, render_table
from storage.records import Generation, Round
from storage.run import Baseline, Conditions, Origin, Run, Scores
from tests import tiny

POOL = SimpleNamespace(name="tiny", card_hash="0123", dtype="float32", device=torch.device("cpu"))
ASKED = Asked(
    suite="suite",
    items=[SuiteItem("1", "a", "math")] * 3,
    policies=("ucb:beta=0.1", "ucb"),
    params=SamplingParams(64, 0.7, 0.9, 40, 6),
    begun=datetime(2026, 11, 22, 10, 30, 5, 123, UTC),
    seed=3,
    repeat=2,
    limit=5,
)
ITEMS = [SuiteItem("1", "a", "math"), SuiteItem("2", "b", "sql")]
ROUND = Round(
    index=0, arm=0, drafter="near", drafted=(1, 2, 3, 4), accepted=2, tokens=(1, 2, 9), own=9, text="abc",
    pieces=("a", "b", "c"), draft_length=4, nodes=4, depth=4, draft_seconds=0.06, verify_seconds=0.2,
    policy_seconds=0.01, evaluate_seconds=0.03, evaluated=3,
)  # fmt: skip
PLAIN = replace(
    ROUND, arm=None, drafter=None, drafted=(), accepted=0, tokens=(9,), text="c", pieces=("c",), draft_length=0,
    nodes=0, depth=0, draft_seconds=0.0, policy_seconds=0.0, evaluate_seconds=0.0, evaluated=0,
)  # fmt: skip


def generation(policy, rounds, status="completed", prefill=0.5):
    tokens = [token for r in rounds for token in r.tokens]
    return Generation("p", policy, ("near",), 1, tokens, "", list(rounds), status, prefill)


def entry(item, generation, baseline=None, **scores):
    """One prompt under one policy; ``baseline`` is the autoregressive generation."""
    generation = replace(generation, prompt=item.prompt)
    run = Run(generation, ASKED.params, 7, Conditions("tiny", "0123", "a machine", "float32", "1"), Origin("bench"))
    run.baseline = Baseline.of(baseline, "answer") if baseline else None
    run.scores = Scores(**scores)
    return Entry(item, 0, run)


def runs():
    """Two prompts: 12 tokens each in 2.4 s without a drafter, in 1.2 s (four rounds of 3 tokens) with one; the prefill
    takes 0.5 s without drafters and 0.7 s with them."""
    found = []
    regret = {"regret_rounds": 2, "best_drafter": "near", "best_arm_ratio": 1.0}
    for item, lossless, known in zip(ITEMS, (True, False), (regret, {}), strict=True):
        baseline = generation("autoregressive", [PLAIN] * 12)
        found.append(entry(item, baseline, baseline, lossless=True))
        fast = generation("ucb", [ROUND] * 4, prefill=0.7)
        found.append(entry(item, fast, baseline, lossless=lossless, **known))
    failed = SuiteItem("3", "c", "sql")
    for policy in ("autoregressive", "ucb"):
        found.append(entry(failed, Generation("c", policy, (), 0, status="error", error="too long")))
    return found


def report_of(runs, pool=POOL, **more):
    return make_report(pool, ASKED, runs, **more)


@pytest.fixture
def report():
    return report_of(runs())


def test_its_head(report):
    head = {key: report[key] for key in ("pool", "card_hash", "hardware", "dtype", "version", "suite")}
    assert head == {
        "pool": "tiny",
        "card_hash": "0123",
        "hardware": describe(torch.device("cpu")),
        "dtype": "float32",
        "version": md.version(),
        "suite": "suite",
    }
    assert report["date"] == "2026-11-22T10:30:05+00:00"
    assert report["settings"] == {
        "max_new_tokens": 64,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "draft_length": 6,
        "policies": ["ucb:beta=0.1", "ucb"],
        "seed": 3,
        "repeat": 2,
        "limit": 5,
    }
    assert report["runs"] == {"planned": 18, "done": 6} and report["interrupted"] is False
    assert report_of(runs()[:2], interrupted=True)["interrupted"] is True
    assert report["failures"] == [
        {"id": "3", "policy": policy, "error": "too long"} for policy in ("autoregressive", "ucb")
    ]
    assert list(report["policies"]) == ["autoregressive", "ucb"]


def test_its_totals(report):
    ucb = report["policies"]["ucb"]
    assert ucb["tokens"] == 24 and ucb["prompts"] == 2
    assert ucb["tokens_per_second"] == pytest.approx(24 / 2.4)
    assert ucb["speedup"] == pytest.approx(2.0) and ucb["request_speedup"] == pytest.approx(2.9 / 1.9)
    assert ucb["speedup_interval"] is ucb["request_speedup_interval"] is None, "of two prompts there is none"
    assert ucb["mean_accepted_tokens"] == 3.0
    assert ucb["acceptance_rate"] == 0.5
    assert ucb["regret_rounds"] == 2.0 and ucb["best_arm_ratio"] == 1.0
    assert ucb["prefill_seconds"] == pytest.approx(1.4)
    assert ucb["seconds"] == pytest.approx(2.4)
    parts = [ucb[f"{phase}_seconds"] for phase in ("draft", "verify", "policy", "evaluate")]
    assert parts == pytest.approx([0.48, 1.6, 0.08, 0.24])
    assert ucb["statuses"] == {"completed": 2, "error": 1}
    assert ucb["lossless"] is False


def test_the_baseline_against_itself(report):
    plain = report["policies"]["autoregressive"]
    assert plain["speedup"] == pytest.approx(1.0)
    assert plain["mean_accepted_tokens"] == 1.0
    assert plain["acceptance_rate"] is None
    assert plain["regret_rounds"] is None and plain["best_arm_ratio"] is None
    assert plain["lossless"] is True


def test_by_task(report):
    tasks = report["policies"]["ucb"]["by_task"]
    assert list(tasks) == ["math", "sql"]
    assert tasks["math"]["lossless"] is True and tasks["sql"]["lossless"] is False
    assert tasks["sql"]["statuses"] == {"completed": 1, "error": 1}
    assert tasks["sql"]["regret_rounds"] is None
    assert set(tasks["math"]) == set(report["policies"]["ucb"]) - {"by_task"}


def test_two_prompts_of_one_id_are_two_prompts():
    twins = [SuiteItem("1", "a", "t"), SuiteItem("1", "b", "t")]
    baseline = generation("autoregressive", [PLAIN])
    runs = [entry(item, baseline, baseline, lossless=True) for item in twins]
    found = report_of(runs)
    assert found["policies"]["autoregressive"]["prompts"] == 2


def test_the_best_drafter_of_each_task():
    """Without a drafter a prompt takes 2.4 s, 12 tokens each; "near" 1.2 s for math, "far" 1.2 s for sql."""
    found = []
    for item, faster in zip(ITEMS, ("fixed:near", "fixed:far"), strict=True):
        plain = generation("autoregressive", [PLAIN] * 12)
        found.append(entry(item, plain, plain, lossless=True))
        for spec in ("fixed:near", "fixed:far"):
            rounds = [ROUND] * 4 if spec == faster else [PLAIN] * 12
            found.append(entry(item, generation(spec, rounds, prefill=0.0), plain, lossless=True))
    best = best_drafters(report_of(found))
    assert best["drafters"] == {"math": "near", "sql": "far"}
    assert best["tokens_per_second"] == pytest.approx(24 / 2.4)
    report = report_of(found)["policies"]
    assert best["speedup"] == pytest.approx((24 / 2.4) / report["autoregressive"]["tokens_per_second"])
    assert best["tokens_per_second"] > max(report[f"fixed:{name}"]["tokens_per_second"] for name in ("near", "far"))


def test_no_best_drafter_where_none_was_measured_alone(report):
    assert best_drafters(report) is None


def test_nothing_but_failures():
    report = report_of(runs()[-2:])
    ucb = report["policies"]["ucb"]
    assert (ucb["tokens"], ucb["tokens_per_second"], ucb["speedup"], ucb["prompts"]) == (0, None, None, 0)
    assert render_table(report).splitlines()[-1] == f"| ucb{' | –' * (len(COLUMNS) + 1)} |"
    assert notes(report) == ["Prompts that could not be run: 1, e.g. 3: too long."]


def test_answers_too_short_for_a_speedup_keep_their_other_figures():
    plain = generation("autoregressive", [PLAIN] * 6)
    report = report_of([entry(ITEMS[0], each, plain) for each in (plain, generation("ucb", [ROUND] * 2))])
    assert render_table(report).splitlines()[-1].startswith("| ucb | – | – | – | 3.00 |")
    assert notes(report) == ["2 runs of fewer than 8 tokens are left out of speed-ups: too short to say."]


def test_what_the_table_cannot_show_is_said_below_it():
    found = runs()[:4]
    found[1].run.generation.benched["near"] = "KeyError: 7"
    report = report_of(found)
    for row in report["rows"]:
        row["speedup_uncertainty"] = 0.5 if row["policy"] == "ucb" and row["task"] == "sql" else 0.01
    said = notes(report)
    assert "The machine was busy: the timings of 1 of 2 runs may put their speed-ups off" in said[0]
    assert "ucb: drafter near failed in 1 of 2 runs, which went on without it: KeyError: 7." in said


def with_a_failed_policy(prompts):
    """The usual runs, ``bad`` failing on so many of both prompts."""
    found = runs()
    for index, one in enumerate(runs()[1:4:2]):
        broken = Generation("p", "bad", (), 1, status="error", error="policy 'bad' chose drafter 9")
        out = broken if index < prompts else replace(one.run.generation, policy="bad")
        found.append(replace(one, run=replace(one.run, generation=out, scores=Scores())))
    return found


def test_a_policy_that_fails_has_no_figures_and_its_error():
    report = report_of(with_a_failed_policy(prompts=2))
    bad = report["policies"]["bad"]
    assert (bad["failed"], bad["error"], bad["prompts"]) == (2, "policy 'bad' chose drafter 9", 0)
    assert bad["speedup"] is bad["speedup_interval"] is bad["mean_accepted_tokens"] is bad["acceptance_rate"] is None
    assert report["policies"]["ucb"]["failed"] == 0 and report["policies"]["ucb"]["error"] is None
    assert render_table(report).splitlines()[-1] == "| bad | – | – | failed | – | – | – | – | – | – | – |"
    assert notes(report)[0] == "bad failed in 2 of 2 runs: policy 'bad' chose drafter 9."


def test_a_policy_that_fails_once_is_measured_on_the_rest():
    report = report_of(with_a_failed_policy(prompts=1))
    assert report["policies"]["bad"]["speedup"] == pytest.approx(2.0)
    assert "| bad | – | 2.00x | 2.00x | 1.53x |" in render_table(report)
    assert notes(report)[0].startswith("bad failed in 1 of 2 runs: policy 'bad' chose drafter 9. Its figures are of")


def test_a_task_that_a_policy_has_not_come_to():
    """A benchmark may be interrupted between two policies."""
    one = runs()[1]
    found = runs()[:3]
    for spec in ("fixed:near", "fixed:far"):
        found.append(replace(one, run=replace(one.run, generation=replace(one.run.generation, policy=spec))))
    report = report_of(found)
    assert "| ucb | 2.00x | – | 2.00x | 1.53x |" in render_table(report)
    assert best_drafters(report) is None


def test_it_is_json(report):
    assert json.loads(json.dumps(report)) == report


def test_the_table(report):
    lines = render_table(report).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads = "policy|math|sql|decode|whole request|MAT|tokens/drafting s|tokens/s|regret|best arm|lossless"
    assert cells[0] == heads.split("|")
    assert set(cells[1]) == {"---"}
    assert cells[2] == ["autoregressive", "1.00x", "1.00x", "1.00x", "1.00x", "1.00", *"–5––", "yes"]
    rest = ["3.00", "50", "10", "2.0", "100%", "NO"]
    assert cells[3] == ["ucb", "2.00x", "2.00x", "2.00x", "1.53x", *rest]


def test_a_task_with_a_bar_in_its_name_keeps_the_table_s_columns():
    baseline = generation("autoregressive", [PLAIN])
    run = entry(SuiteItem("1", "a", "a|b"), baseline, baseline, lossless=True)
    table = render_table(report_of([run]))
    assert r"a\|b" in table.splitlines()[0]


def test_a_report_of_a_real_run(pool):
    items = [SuiteItem(str(i), text, "letters") for i, text in enumerate(tiny.texts(3, 60, 3))]
    runs = list(SuiteRun(pool, items, ["autoregressive", "ucb", "fixed:near"], SamplingParams(12), repeat=2).all())
    report = report_of(runs, pool)
    assert report["failures"] == []
    for spec, summary in report["policies"].items():
        assert summary["prompts"] == 3 and summary["tokens"] == 3 * 2 * 12, spec
        assert summary["lossless"] is True
        assert summary["tokens_per_second"] > 0 and summary["speedup"] > 0
    assert report["policies"]["autoregressive"]["speedup"] == pytest.approx(1.0)
    assert len(render_table(report).splitlines()) == 5


def test_a_prompt_that_stands_in_a_suite_twice_counts_once(pool):
    texts = tiny.texts(2, 60, 3)
    items = [SuiteItem(str(number), text, "letters") for number, text in enumerate([texts[0]] * 3 + texts[1:])]
    runs = list(SuiteRun(pool, items, ["fixed:near"], SamplingParams(12)).all())
    rounds = {run.item.prompt: len(run.run.generation.rounds) for run in runs}
    assert len(set(rounds.values())) == 2
    found = report_of(runs, pool)["policies"]["fixed:near"]
    times = [mean([r.run.generation.seconds for r in runs if r.item.prompt == prompt]) for prompt in rounds]
    figures = Figures.of([Row.of(run.item.id, run.item.task, run.run) for run in runs])
    assert found["tokens_per_second"] == figures.tokens_per_second == pytest.approx(24 / sum(times))
    assert found["mean_accepted_tokens"] == pytest.approx(24 / sum(rounds.values())) and found["prompts"] == 2


def test_the_best_drafters_are_weighed_by_distinct_prompts():
    slow, found = replace(PLAIN, verify_seconds=1.0), []
    for item, round, copies in zip(ITEMS, (PLAIN, slow), (9, 1), strict=True):
        for policy in ("autoregressive", "fixed:near", "fixed:far"):
            own = generation(policy, [round] * 12)
            found += [entry(item, own, own)] * copies
    assert best_drafters(report_of(found))["speedup"] == pytest.approx(1.0)


def test_sampled_runs_show_their_expected_regret():
    found = runs()
    for run, loss in zip(found, (0.0, 0.25, 0.0, 0.75, 0.0, 0.0), strict=True):
        sampled = {"expected_regret": loss, "best_drafter": "near", "best_arm_ratio": 0.5}
        run.run.scores = Scores(**sampled) if run.policy == "ucb" and run.measured else Scores()
    report = report_of(found)
    ucb = report["policies"]["ucb"]
    assert (ucb["expected_regret"], ucb["regret_rounds"], ucb["best_arm_ratio"]) == (0.5, None, 0.5)
    assert render_table(report).splitlines()[3].split(" | ")[-3:] == ["0.50", "50%", "– |"]
    assert notes(report)[0] == "Sampled runs: their regret is the expected loss of the drafts, not rounds."
    assert "Sampled" not in "".join(notes(report_of(runs())))


def test_near_ties_keep_the_size_of_their_gap():
    found = runs()
    for run, gap in zip(found[1:4:2], (1e-5, 3e-5), strict=True):
        run.run.scores = Scores(lossless=True, near_tie_gap=gap)
    report = report_of(found)
    ucb = report["policies"]["ucb"]
    assert (ucb["lossless"], ucb["near_ties"], ucb["near_tie_gap"]) == (True, 2, 3e-5)
    assert report["policies"]["autoregressive"]["near_tie_gap"] is None
    said = "ucb: in 2 outputs rounding decided between two tokens, whose logits lie at most 3e-05 apart."
    assert notes(report)[0] == said


def many(prompts, repeats=1):
    """Prompts of 12 tokens: 2.4 s without a drafter, in turn 4 rounds of 3 tokens or 6 of 2 with one."""
    found = []
    for number in range(prompts):
        baseline = generation("autoregressive", [PLAIN] * 12)
        rounds = (4, 6)[number % 2]
        fast = generation("ucb", [replace(ROUND, tokens=(1,) * (12 // rounds))] * rounds)
        item = SuiteItem(str(number), f"a {number}", "math")
        for repeat in range(repeats):
            found.append(replace(entry(item, baseline, baseline, lossless=True), repeat=repeat))
            found.append(replace(entry(item, fast, baseline, lossless=True), repeat=repeat))
    return report_of(found)["policies"]


def test_the_interval_spans_the_prompts():
    policies = many(20)
    low, high = policies["ucb"]["speedup_interval"]
    assert policies["ucb"]["speedup"] == pytest.approx(1.6)
    assert 4 / 3 < low < 1.6 < high < 2.0
    assert policies["autoregressive"]["speedup_interval"] == pytest.approx([1.0, 1.0])


def test_repeating_the_prompts_does_not_narrow_the_interval():
    once, often = (many(10, repeats)["ucb"]["speedup_interval"] for repeats in (1, 5))
    assert often == pytest.approx(once)
