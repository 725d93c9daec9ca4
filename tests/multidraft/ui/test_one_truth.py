"""The same runs give the same figures on Batch, Dashboard, Lab and in the verdict."""

from dataclasses import replace
from pathlib import Path

import pytest

from drafters.sampling import SamplingParams
from multidraft.bench.measured_verdict import leader, measured, of_rows, ran_live
from multidraft.bench.suites import SuiteItem
from multidraft.bench.summary import Row, overall
from multidraft.bench.verdict import sentences, verdict
from multidraft.replay.experiment import ORACLE
from multidraft.replay.recorded import recorded_texts
from multidraft.service.batch import BatchJob
from multidraft.service.lab import LabWork
from multidraft.service.workbench import Workbench
from multidraft.ui.tabs.batch.view import matrix_html
from multidraft.ui.tabs.dashboard.views import ranked
from multidraft.ui.tabs.lab.view import outcomes_html
from multidraft.ui.widgets.markup import number
from storage import experiments, ranking
from storage.filters import Filter
from storage.store import Store
from storage.texts import TextFilter
from tests import tiny
from tests.runs import make_round, make_run

POLICIES = ["fixed:near", "exp3spec"]
FIGURES = ("speedup", "request_speedup")


@pytest.fixture
def batch(workbench: Workbench) -> BatchJob:
    texts = tiny.texts(6, 5, 6, 9)
    items = [SuiteItem(str(n), text, "letters") for n, text in enumerate([*texts, texts[0]])]  # one of them twice
    batch = BatchJob(workbench, items, POLICIES, SamplingParams(max_new_tokens=16, draft_length=4))
    workbench.jobs.submit(batch).wait(120)
    assert workbench.store.flush() and len(batch.rows) == 14
    return batch


def test_a_batch_has_one_figure_everywhere(workbench: Workbench, batch: BatchJob) -> None:
    path: Path = workbench.store.path
    shown = overall(batch.rows)
    summary = ranked(path, Filter(shared=True)).summary.set_index("policy")
    texts = recorded_texts(path, TextFilter(Filter(batch_id=(batch.id,))))
    live = measured(ran_live(path, texts, Filter()), texts)
    assert live
    said = of_rows(batch.rows, 4)
    job = LabWork(workbench).experiment(TextFilter(Filter(batch_id=(batch.id,))), POLICIES)
    assert job.wait(60) and job.result
    lab, page = outcomes_html(job.result), matrix_html(batch.rows, batch.policies)
    for policy in POLICIES:
        option = next(option for option in said.options if option.spec == policy)
        verdict = [option.times_as_fast(said.plain, part).value for part in ("decode", "request")]
        own = next(option for option in live.options if option.spec == policy)
        ran = [own.times_as_fast(live.plain, part) for part in ("decode", "request")]
        for name, found, advised in zip(FIGURES, ran, verdict, strict=True):
            figure = getattr(shown[policy], name).value
            assert figure == pytest.approx(summary.loc[policy, name]) == pytest.approx(found.value)
            assert figure == pytest.approx(advised)
            assert found.prompts == summary.loc[policy, f"{name}_prompts"] == 6, "one was asked twice"
            assert number(figure, 2, "×") in lab
        assert number(shown[policy].speedup.value, 2, "×") in page


def test_the_fastest_policy_is_the_same_everywhere(tmp_path: Path) -> None:
    """Eight prompts, a machine that was half as fast when ``slow`` ran: verdict, star, rank and list agree."""
    path, noise = tmp_path / "runs.db", (1.0, 1.2)
    with Store(path) as store:
        for number in range(8):
            for spec, seconds in (("fixed:a", 0.004), ("fixed:b", 0.0041 * noise[number % 2]), ("ucb", 0.02)):
                rounds = [make_round(index, draft_seconds=seconds, verify_seconds=seconds) for index in range(3)]
                slow = {"baseline": 75.0} if spec == "ucb" else {}
                store.add(
                    make_run(prompt=str(number), policy=spec, rounds=rounds, batch_id="b", source="batch", **slow)
                )
    rows = [Row.recorded(values) for values in experiments.figures(path, "b")]
    found = ranking.policy_summary(path, Filter(shared=True)).set_index("policy")["rank"].to_dict()
    assert found == of_rows(rows, 4).ranks and found["fixed:a"] == 1 and found["ucb"] == 3
    first = [spec for spec, rank in found.items() if rank == 1]
    assert leader(rows) == (first[0] if len(first) == 1 else None)
    starred = matrix_html(rows, list(found)).count("md-best")
    assert starred == (len(first) == 1)


def test_the_verdict_is_on_the_prompts_that_the_dashboard_ranks_on(workbench: Workbench, batch: BatchJob) -> None:
    """A later batch, of one policy and more prompts, beside a faster baseline."""
    path, more = workbench.store.path, [SuiteItem("new", tiny.texts(10)[-1], "letters"), batch.items[1]]
    again = BatchJob(workbench, more, ["exp3spec", "autoregressive"], batch.params)
    workbench.jobs.submit(again).wait(120)
    assert workbench.store.flush()
    texts = recorded_texts(path, TextFilter(Filter()))
    live = measured(ran_live(path, texts, Filter()), texts)
    assert live and len(texts) > live.prompts
    summary = ranked(path, Filter(shared=True)).summary.set_index("policy")
    for option in live.options:
        for name, part in (("speedup", "decode"), ("request_speedup", "request")):
            found = option.times_as_fast(live.plain, part)  # type: ignore[arg-type]
            assert [found.value, found.low, found.high] == pytest.approx(
                [summary.loc[option.spec, f"{name}{end}"] for end in ("", "_low", "_high")], rel=1e-6
            )


def test_a_verdict_is_on_runs_of_one_draft_length(workbench: Workbench, batch: BatchJob) -> None:
    again = BatchJob(workbench, batch.items[:3], POLICIES, replace(batch.params, draft_length=2))
    workbench.jobs.submit(again).wait(120)
    assert workbench.store.flush()
    job = LabWork(workbench).advise(TextFilter(Filter()))
    assert job.wait(60) and job.result and job.result.measured
    assert (job.result.texts, job.result.left_out) == (6, 3) and {o.length for o in job.result.measured.options} == {4}
    own = of_rows(batch.rows, 4)
    for option in job.result.measured.options:
        alone = next(other for other in own.options if other.spec == option.spec)
        assert option.mean_accepted_tokens == pytest.approx(alone.mean_accepted_tokens)
    _, caveats, (*_, basis) = verdict(job.result)
    assert "runs with draft length 4 and at most 16 tokens" in basis
    assert "leaves out 3 texts of other pools, machines or settings" in caveats[-1]


def test_the_lab_and_the_verdict_replay_alike(workbench: Workbench, batch: BatchJob) -> None:
    work, texts = LabWork(workbench), TextFilter(Filter(batch_id=(batch.id,)))
    experiment, verdict = work.experiment(texts, POLICIES), work.advise(texts)
    assert experiment.wait(60) and verdict.wait(60) and experiment.result and verdict.result
    own = verdict.result.measured
    assert own and sentences(own) == sentences(of_rows(batch.rows, 4)), "the batch's page says the same"
    for option in verdict.result.options:
        if option.spec in POLICIES and option.length == 4:
            decode, request = experiment.result.speedups(option.spec)
            assert decode and request
            assert decode.value == pytest.approx(option.times_as_fast(verdict.result.plain, "decode").value)
            assert request.value == pytest.approx(option.times_as_fast(verdict.result.plain).value)
            outcome = experiment.result.outcome(option.spec)
            assert outcome.texts == 6 and outcome.mean_accepted_tokens == pytest.approx(option.mean_accepted_tokens)
    assert experiment.result.speedups(ORACLE)[0] is not None
