from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest

from multidraft.bench.replays import Recorded
from multidraft.costs import CostMeter
from multidraft.sampling import SamplingParams
from multidraft.ui import lab_view, lab_work
from multidraft.ui.lab import Lab
from multidraft.ui.lab_sweep import default_range
from multidraft.ui.lab_texts import ALL_SUITES
from multidraft.ui.lab_work import BEST_FIXED, Experiment, LabWork, Progress
from multidraft.ui.worker import Request, Workbench
from storage import queries, texts
from storage.store import Store
from storage.texts import TextFilter

PARAMS = SamplingParams(max_new_tokens=16, draft_length=4)
SPECS = ["ucb", "fixed:near", "rate-hedge"]


@pytest.fixture
def filled(workbench: Workbench, store: Store) -> Workbench:
    """A workbench whose history holds two texts that can be replayed (runs 1 and 2) and a sampled run (3)."""
    sampled = SamplingParams(max_new_tokens=6, temperature=1.0, draft_length=4)
    runs = [("abc abd", "ucb", PARAMS), ("bcd", "fixed:near", PARAMS), ("abc", "ucb", sampled)]
    for prompt, policy, params in runs:
        assert workbench.submit(Request(prompt, policy, params, task="<i>letters</i>")).wait(60)
    assert store.flush()
    return workbench


def experiment(workbench: Workbench, specs: list[str], filter: TextFilter) -> Experiment:
    *_, found = LabWork(workbench).experiment(filter, specs)
    assert isinstance(found, Experiment)
    return found


def replay(lab: Lab, specs: list[str], run: float | None = None, newest: float | None = 50) -> list[tuple]:
    key = lab.texts.refresh(None, ALL_SUITES, [], newest, run)[2].value
    return list(lab.replay(key, ALL_SUITES, [], newest, run, specs))


def test_an_experiment_holds_every_policy_and_what_it_is_compared_with(filled: Workbench) -> None:
    found = experiment(filled, SPECS, TextFilter())
    assert sorted(found.policies) == ["fixed:near", "rate-hedge", "ucb:reward=be"]
    rates = [found.outcome(spec).tokens_per_second or 0.0 for spec in found.policies]
    assert rates == sorted(rates, reverse=True)
    assert all(len(played) == 2 for played in found.played.values())
    assert found.outcome("oracle").regret == 0 and found.outcome("autoregressive").mean_accepted_tokens == 1
    assert found.outcome(BEST_FIXED).tokens == found.outcome("ucb:reward=be").tokens == 32


def test_plain_decoding_stands_in_the_table_once_though_it_is_chosen(filled: Workbench) -> None:
    *_, (_, outcomes, *_) = replay(Lab(filled), ["ucb", "autoregressive"])
    assert outcomes.count("No drafter") == 1 and outcomes.count("<tr>") == 1 + 2 + 2


def test_a_spec_without_settings_finds_the_policy_to_sweep(filled: Workbench) -> None:
    lab = Lab(filled)
    key = lab.texts.refresh(None, ALL_SUITES, [], 50, None)[2].value
    _, swept = lab.offer(key)
    found = [spec for label, spec in swept.choices if "ucb" in label.lower()]
    assert found[0] == "ucb:reward=be"


def test_the_replay_of_a_recorded_policy_is_its_run(filled: Workbench) -> None:
    found = experiment(filled, ["fixed:near"], TextFilter(id=2))
    (run,) = texts.replayable(filled.store.path, TextFilter(id=2))
    assert found.played["fixed:near"][0].rounds == run["rounds"]
    assert found.played["fixed:near"][0].regret == run["regret_rounds"]


def test_replays_wait_for_a_run_under_way(filled: Workbench, gate) -> None:
    job = filled.submit(Request("abd", "ucb", PARAMS))
    assert gate.reached.wait(30)
    steps = LabWork(filled).experiment(TextFilter(), SPECS)
    assert next(steps) == next(steps) == Progress() and not job.done
    gate.open()
    *_, found = steps
    assert isinstance(found, Experiment) and job.done


def test_the_page_shows_table_and_curves(filled: Workbench) -> None:
    *_, last = replay(Lab(filled), SPECS)
    status, outcomes, chart, lanes, rounds, button, stop = last
    assert "2 texts, 32 tokens" in status and "nothing was decoded" in status
    assert outcomes.count("<tr>") == 1 + 3 + 3 and "md-best" in outcomes and "Oracle" in outcomes
    assert chart.visible and not lanes.visible and rounds == ""
    assert button.interactive and not stop.interactive


def test_rounds_of_policies_that_go_by_the_clock_are_called_estimates(filled: Workbench) -> None:
    *_, (status, outcomes, chart, *_) = replay(Lab(filled), SPECS)
    assert "estimates (≈) for those by the clock: Rate (ours)" in status
    lines = {line.split("</span>")[0].split(">")[-1]: line for line in outcomes.split("<tr>")[2:]}
    assert "rounds estimated" in lines["Rate (ours)"] and lines["Rate (ours)"].count("≈") == 4
    assert sum("≈" in line or "estimated" in line for line in lines.values()) == 1
    assert [trace["name"] for trace in json.loads(chart.value["plot"])["data"] if "est" in trace["name"]] == [
        "Rate (ours) (estimated)"
    ]
    *_, (status, outcomes, *_) = replay(Lab(filled), ["UCB", "ucb:reward=be"])
    assert "Rounds and regret are exact." in status and "≈" not in outcomes
    assert outcomes.count("<tr>") == 1 + 1 + 3  # one policy, whichever way it is spelled


def test_one_run_shows_its_rounds_side_by_side(filled: Workbench) -> None:
    *_, last = replay(Lab(filled), ["ucb", "random"], run=1)
    _, _, _, lanes, rounds, *_ = last
    assert lanes.visible and "near" in rounds and "UCB (reward=be)" in rounds
    found = experiment(filled, ["ucb", "random"], TextFilter(id=1))
    assert (
        sum(sum(bar.x) for bar in lab_view.rounds_figure(found).data) == 3 * 16
    )  # every token of three lanes is some round's


@pytest.mark.parametrize(
    ("specs", "run", "newest", "said"),
    [
        ([], None, 50, "Choose 1 to 30 policies"),
        (["nonsense"], None, 50, "choose one of"),
        (["ucb:beta=x"], None, 50, "must be a number"),
        (["normal-hedge:gamma=soft"], None, 50, "use gamma=hard"),
        (["router"], None, 50, "needs a router"),
        (["ucb"], 3, 50, "it was sampled"),
        (["ucb"], 99, 50, "no run of this number"),
        (["ucb"], 1e20, 50, "no run of this number"),
        (["ucb"], 2.5, 50, "must be a whole number, got 2.5"),
        (["ucb"], None, 1.5, "must be a whole number, got 1.5"),
        (["ucb"], None, 0, "must be 1 to 200"),
        (["ucb"], None, None, "Newest texts is empty"),
    ],
)
def test_bad_choices_get_a_sentence(
    filled: Workbench, specs: list[str], run: float | None, newest: float | None, said: str
) -> None:
    *_, last = replay(Lab(filled), specs, run, newest)
    assert 'role="alert"' in last[0] and said in last[0] and last[-2].interactive


def test_fields_say_what_there_is_to_replay(filled: Workbench) -> None:
    lab = Lab(filled)
    empty, inside, bench, suite, tasks = lab.texts.refresh(None, ALL_SUITES, ["gone"], 50, None)
    assert empty == "" and inside.visible and suite.value == ALL_SUITES and tasks.value == []
    assert "2 texts" in bench.choices[0][0]
    assert "2 texts, 32 tokens" in lab.texts.describe(bench.value, ALL_SUITES, [], 50, None)
    assert "Run 2: 16 tokens" in lab.texts.describe(bench.value, ALL_SUITES, [], 50, 2)
    assert "No text fits" in lab.texts.describe(bench.value, "none", [], 50, None)
    policies, _ = lab.offer(bench.value)
    assert "value" not in policies.constructor_args
    titles = {spec: title for title, spec in policies.choices}
    assert "fixed:near" in titles and "router" not in titles
    assert titles["ucb:reward=be"] == "UCB (reward=be)", "as the table of what was replayed has it"
    assert "fixed:near" not in lab.all_policies(bench.value)


def test_an_empty_history_says_how_to_get_runs(workbench: Workbench) -> None:
    empty, inside, *_ = Lab(workbench).texts.refresh(None, ALL_SUITES, [], 50, None)
    assert "No run to replay yet" in empty and not inside.visible


def sweep(lab: Lab, policy: str, setting: str, start: float, end: float, points: float) -> Iterator[tuple]:
    key = lab.texts.refresh(None, ALL_SUITES, [], 50, None)[2].value
    return lab.sweeping.sweep(key, ALL_SUITES, [], 50, None, policy, setting, start, end, points, "linear")


def test_a_sweep_ends_in_three_charts_and_a_table(filled: Workbench) -> None:
    *_, (status, *charts, table, _, _) = sweep(Lab(filled), "ucb", "draft length", 1, 4, 9)
    assert "at 4 values" in status and "2 texts" in status
    assert [chart.visible for chart in charts] == [True] * 3
    assert table.count("<tr>") == 5 and table.count("md-best") >= 1


@pytest.mark.parametrize(
    ("policy", "setting", "range", "said"),
    [
        ("ucb", "beta", (-1, 1, 3), "beta must be 0 or"),
        ("ucb", "reward", (0, 1, 3), "cannot be swept; choose one of: beta, draft length"),
        ("nonsense", "beta", (0, 1, 3), "choose one of"),
        ("ucb", "beta", (0, 1, 99), "Points must be 2 to 25"),
    ],
)
def test_a_sweep_that_cannot_be_gets_a_sentence(
    filled: Workbench, policy: str, setting: str, range: tuple[float, float, float], said: str
) -> None:
    *_, last = sweep(Lab(filled), policy, setting, *range)
    assert said in last[0] and 'role="alert"' in last[0]


def test_default_ranges_hold_what_the_policy_takes() -> None:
    assert default_range("ucb", "beta") == (0.01 / 16, 0.16, True)
    assert default_range("rate-hedge", "memory")[1] == 1.0
    assert default_range("sw-ucb:window=5", "window") == (5, 320, False)
    assert default_range("ucb", "draft length", 12) == (1, 12, False)


class Visit:
    """Stands for ``gr.Request``."""

    def __init__(self, **query: str):
        self.query_params = query


@pytest.mark.parametrize(
    ("query", "run"), [({"tab": "lab", "run": "2"}, 2), ({"run": "2"}, None), ({"tab": "lab", "run": "x1"}, None)]
)
def test_a_link_names_a_run(filled: Workbench, query: dict[str, str], run: float | None) -> None:
    lab, visit = Lab(filled), Visit(**query)
    assert lab.linked(visit) == (run, run or gr.skip())  # type: ignore[arg-type]


def test_the_tab_is_built_with_the_page(filled: Workbench) -> None:
    """What is chosen while an answer is under way is answered too, and Stop ends replays and sweeps."""
    lab = Lab(filled)
    with gr.Blocks() as page, gr.Tab("Lab") as tab:
        lab.build(tab, page)
    fields = {field._id for field in lab.texts.fields}
    (chosen,) = [fn for fn in page.fns.values() if fn.name == "refresh"]
    assert fields < {id for id, _ in chosen.targets} and chosen.trigger_mode == "always_last"
    replays = [fn._id for fn in page.fns.values() if fn.name in ("replay", "sweep")]
    assert len(replays) == 3 and sorted(id for fn in page.fns.values() for id in fn.cancels) == sorted(replays)


def test_a_newer_choice_is_not_written_over(filled: Workbench) -> None:
    lab = Lab(filled)
    key = lab.texts.refresh(None, ALL_SUITES, [], 50, None)[2].value
    *_, bench, suite, tasks = lab.texts.refresh(key, ALL_SUITES, ["<i>letters</i>"], 50, None)
    assert not any("value" in field.constructor_args for field in (bench, suite, tasks))
    *_, bench, suite, tasks = lab.texts.refresh("gone", "gone", ["gone", "<i>letters</i>"], 50, None)
    assert (bench.value, suite.value, tasks.value) == (key, ALL_SUITES, ["<i>letters</i>"])


def test_all_that_computes_runs_on_the_devices_thread(filled: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a timed run it would slow this down."""
    threads: list[str] = []

    def watch(owner: Any, name: str) -> None:
        made = getattr(owner, name)

        def watched(*args: Any, **named: Any) -> Any:
            threads.append(threading.current_thread().name)
            return made(*args, **named)

        monkeypatch.setattr(owner, name, watched)

    watch(Recorded, "replay")
    watch(Recorded, "best_fixed")
    watch(lab_work, "mean_regret")
    watch(CostMeter, "played")
    lab = Lab(filled)
    *_, last = replay(lab, SPECS)
    assert "nothing was decoded" in last[0]
    *_, last = sweep(lab, "ucb", "beta", 0.1, 1, 2)
    assert "at 2 values" in last[0]
    assert threads and all(name.startswith("device") for name in threads)


def test_who_no_longer_watches_ends_the_replays(filled: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Stop does: Gradio closes what yields."""
    monkeypatch.setattr(lab_work, "SLICE_SECONDS", 0.0)
    slices: list[int] = []
    between_runs = filled.between_runs
    monkeypatch.setattr(filled, "between_runs", lambda work: (slices.append(1), between_runs(work))[1])
    steps = LabWork(filled).experiment(TextFilter(), SPECS)
    while not (step := next(steps)).total:  # type: ignore[union-attr]
        pass
    made = len(slices)
    steps.close()  # type: ignore[attr-defined]
    assert filled.between_runs(lambda: None).result(30) is None
    assert len(slices) == made + 1 and step.done < step.total  # type: ignore[union-attr]


def test_costs_are_read_once(filled: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every replay, sweep and draft length: the rounds of a run are read the first time only."""
    read: list[int] = []
    timed_rounds = queries.timed_rounds
    monkeypatch.setattr(queries, "timed_rounds", lambda path, ids: (read.extend(ids), timed_rounds(path, ids))[1])
    short = SamplingParams(max_new_tokens=8, draft_length=2)
    assert filled.submit(Request("abd", "ucb", short)).wait(60) and filled.store.flush()
    lab = Lab(filled)
    replay(lab, ["ucb"])
    assert read == [1, 2, 3, 4]
    replay(lab, ["ucb", "random"])
    list(sweep(lab, "ucb", "draft length", 1, 4, 4))
    assert read == [1, 2, 3, 4]
    assert filled.submit(Request("abe", "ucb", short)).wait(60) and filled.store.flush()
    replay(lab, ["ucb"])
    assert read == [1, 2, 3, 4, 5]
