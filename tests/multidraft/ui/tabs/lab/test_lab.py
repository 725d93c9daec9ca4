import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest

from drafters.sampling import SamplingParams
from multidraft.bench.measure import Request
from multidraft.replay.experiment import BEST_FIXED, Experiment
from multidraft.replay.machine_costs import RecordedCosts
from multidraft.replay.recorded import Recorded
from multidraft.replay.walk import replay as replayed
from multidraft.service import jobs as service_jobs
from multidraft.service import lab as lab_work
from multidraft.service.lab import ExperimentJob, LabWork
from multidraft.service.workbench import Workbench
from multidraft.ui.tabs.lab import view as lab_view
from multidraft.ui.tabs.lab.tab import Lab
from multidraft.ui.tabs.lab.texts import ALL_SUITES
from storage import queries, texts
from storage.run import Origin
from storage.store import Store
from storage.texts import TextFilter
from tests.multidraft.ui.building import after, built, laid_out
from tests.multidraft.ui.tabs.visits import visit

PARAMS = SamplingParams(max_new_tokens=16, draft_length=4)
SPECS = ["ucb", "fixed:near", "rate-hedge"]


@pytest.fixture
def filled(workbench: Workbench, store: Store) -> Workbench:
    """A workbench whose history holds two texts that can be replayed (runs 1 and 2) and a sampled run (3)."""
    sampled = SamplingParams(max_new_tokens=6, temperature=1.0, draft_length=4)
    runs = [("abc abd", "ucb", PARAMS), ("bcd", "fixed:near", PARAMS), ("abc", "ucb", sampled)]
    for prompt, policy, params in runs:
        assert workbench.submit(Request(prompt, policy, params, origin=Origin("play", "<i>letters</i>"))).wait(60)
    assert store.flush()
    return workbench


def experiment(workbench: Workbench, specs: list[str], filter: TextFilter) -> Experiment:
    job = LabWork(workbench).experiment(filter, specs)
    assert job.wait(60) and job.result
    return job.result


@pytest.fixture
def lab(filled: Workbench) -> Lab:
    return built(Lab(filled), filled)


def bench_of(lab: Lab) -> str:
    """The pool and machine that are chosen first."""
    return lab.texts.refresh(None, ALL_SUITES, [], "", 50, None)[lab.texts.fields[0]].value


def replay(lab: Lab, specs: list[str], run: float | None = None, newest: float | None = 50) -> dict[Any, Any]:
    """What is shown in the end."""
    return after(lab.replay(visit(), bench_of(lab), ALL_SUITES, [], "", newest, run, specs))


def test_an_experiment_holds_every_policy_and_what_it_is_compared_with(filled: Workbench) -> None:
    found = experiment(filled, SPECS, TextFilter())
    assert sorted(found.policies) == ["fixed:near", "rate-hedge", "ucb:reward=be"]
    rates = [found.outcome(spec).tokens_per_second or 0.0 for spec in found.policies]
    assert rates == sorted(rates, reverse=True)
    assert all(len(played) == 2 for played in found.played.values())
    assert found.outcome("oracle").regret == 0 and found.outcome("autoregressive").mean_accepted_tokens == 1
    assert found.outcome(BEST_FIXED).tokens == found.outcome("ucb:reward=be").tokens == 32


def test_autoregressive_decoding_stands_in_the_table_once_though_it_is_chosen(lab: Lab) -> None:
    outcomes = replay(lab, ["ucb", "autoregressive"])[lab.outcomes]
    assert outcomes.count("No drafter") == 1 and outcomes.count("<tr>") == 1 + 2 + 2


def test_the_replay_of_a_recorded_policy_is_its_run(filled: Workbench) -> None:
    found = experiment(filled, ["fixed:near"], TextFilter(id=2))
    (run,) = texts.replayable(filled.store.path, TextFilter(id=2))
    assert found.played["fixed:near"][0].rounds == len(queries.run(filled.store.path, 2).generation.rounds)
    assert found.played["fixed:near"][0].regret == run.scores.regret_rounds


def test_replays_wait_for_a_run_under_way(filled: Workbench, gate) -> None:
    job = filled.submit(Request("abd", "ucb", PARAMS))
    assert gate.reached.wait(30)
    replays = LabWork(filled).experiment(TextFilter(), SPECS)
    assert not replays.wait(0.2) and replays.total == 0 and not job.done
    gate.open()
    assert replays.wait(60) and replays.result and job.wait(60)


def test_a_text_that_ends_within_a_draft_has_all_of_its_last_tokens_from_there() -> None:
    played = replayed(np.array([[2, 1]]), "fixed:near", draft_length=4, max_new_tokens=20, drafters=["near"])
    assert lab_view._round_cell(played, 0, ["near"]) == "near, 2 of 4"


def test_the_page_shows_table_and_curves(lab: Lab) -> None:
    last = replay(lab, SPECS)
    status, outcomes, chart, lanes, rounds = (
        last[part] for part in (lab.status, lab.outcomes, lab.curves, lab.lanes, lab.rounds)
    )
    button, stop = (last[part] for part in lab.buttons.both)
    assert "2 texts, 32 tokens" in status and "without running a model" in status
    assert outcomes.count("<tr>") == 1 + 3 + 3 and "Oracle" in outcomes
    assert "md-best" not in outcomes and "none here" in outcomes and "with the same knowledge" in outcomes
    lines = Path(last[lab.csv].value["path"]).read_text("utf-8").splitlines()
    assert len(lines) == 1 + 3 + 3 and lines[0].startswith("policy,estimate,texts") and last[lab.csv].visible
    assert any(line.startswith("Best drafter and draft length of each text,") for line in lines), "as the table says"
    cited = last[lab.cited]
    assert "Replay of 3 policies on 2 texts" in cited and "http://page.example/?tab=lab&amp;lab_policy=ucb" in cited
    (plain,) = [line for line in outcomes.split("<tr>") if "No drafter" in line]
    assert "Request speed-up" in outcomes and outcomes.count("×") >= 2 * 6 and plain.count("1.00×") == 2
    assert chart.visible and not lanes.visible and rounds == ""
    assert button.interactive and not stop.interactive


def test_rounds_of_policies_that_go_by_the_clock_are_called_estimates(lab: Lab) -> None:
    status, outcomes, chart = (replay(lab, SPECS)[part] for part in (lab.status, lab.outcomes, lab.curves))
    assert "estimates (≈) for those that depend on measured time: RateHedge (ours)" in status
    lines = {line.split("</span>")[0].split(">")[-1]: line for line in outcomes.split("<tr>")[2:]}
    assert "rounds estimated" in lines["RateHedge (ours)"] and lines["RateHedge (ours)"].count("≈") == 7
    assert sum("≈" in line or "estimated" in line for line in lines.values()) == 1
    assert [trace["name"] for trace in json.loads(chart.value["plot"])["data"] if "est" in trace["name"]] == [
        "RateHedge (ours) (estimated)"
    ]
    last = replay(lab, ["UCB", "ucb:reward=be"])
    status, outcomes = last[lab.status], last[lab.outcomes]
    assert "Rounds and regret are exact." in status and "≈" not in outcomes
    assert "UCB was replayed as UCB (reward=be): block divergence" in status
    assert outcomes.count("<tr>") == 1 + 1 + 3  # one policy, whichever way it is spelled


def test_one_run_shows_its_rounds_side_by_side(filled: Workbench, lab: Lab) -> None:
    last = replay(lab, ["ucb", "random"], run=1)
    lanes, rounds = last[lab.lanes], last[lab.rounds]
    assert lanes.visible and "near" in rounds and "UCB (reward=be)" in rounds
    found = experiment(filled, ["ucb", "random"], TextFilter(id=1))
    figure = lab_view.rounds_figure(found)
    assert sum(sum(bar.x) for bar in figure.data) == 3 * 16, "each token is in a round"
    policies = {"UCB (reward=be)", "Random drafter", "Best drafter and draft length of each text"}
    assert {policy for bar in figure.data for policy in bar.y} == policies, "in the CSV"


def test_bad_choices_get_a_sentence(lab: Lab) -> None:
    for specs, run, newest, said in (
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
    ):
        last = replay(lab, specs, run, newest)
        assert said in last[lab.status] and 'role="alert"' in last[lab.status], said
        assert last[lab.buttons.run].interactive, said


def test_fields_say_what_there_is_to_replay(lab: Lab) -> None:
    parts = (lab.texts.empty, lab.texts.inside, *lab.texts.fields[:3])
    shown = lab.texts.refresh(None, ALL_SUITES, ["gone"], "", 50, None)
    empty, inside, bench, suite, tasks = (shown[part] for part in parts)
    assert empty == "" and inside.visible and suite.value == ALL_SUITES and tasks.value == []
    assert "2 texts" in bench.choices[0][0]
    assert "2 texts of 2 prompts, 32 tokens" in lab.texts.describe(bench.value, ALL_SUITES, [], "", 50, None)
    assert "Run 2: 16 tokens, recorded under One drafter (near) with" in lab.texts.describe(
        bench.value, ALL_SUITES, [], "", 50, 2
    )
    assert "No text matches" in lab.texts.describe(bench.value, "none", [], "", 50, None)
    policies, swept = lab.offer(bench.value)
    assert "value" not in policies.constructor_args
    assert next(spec for label, spec in swept.choices if "ucb" in label.lower()) == "ucb:reward=be"
    titles = {spec: title for title, spec in policies.choices}
    assert "fixed:near" in titles and "router" not in titles
    assert titles["ucb:reward=be"] == "UCB (reward=be)", "as the table of what was replayed has it"
    assert (every := lab.all_policies(bench.value, ["fixed:far"]))[0] == "fixed:far" and "fixed:near" not in every


def sweep(lab: Lab, policy: str, setting: str, start: float, end: float, points: float) -> dict[Any, Any]:
    """What is shown in the end."""
    asked = (bench_of(lab), ALL_SUITES, [], "", 50, None)
    return after(lab.sweeping.sweep(*asked, policy, setting, start, end, points, "linear"))


def test_a_sweep_ends_in_three_charts_and_a_table(lab: Lab) -> None:
    last, section = sweep(lab, "ucb", "draft length", 1, 4, 9), lab.sweeping
    status, table, charts = last[section.status], last[section.table], [last[chart] for chart in section.charts]
    assert "at 4 values" in status and "2 texts" in status
    assert [chart.visible for chart in charts] == [True] * 3
    assert table.count("<tr>") == 5


def test_texts_that_were_decoded_beside_others_are_replayed_without_times(filled: Workbench, lab: Lab) -> None:
    """They tell no costs: what would be fastest is not known, and the rounds are."""
    with sqlite3.connect(filled.store.path) as db:
        db.execute("UPDATE runs SET streams = 2, tokens_per_second = NULL, speedup = NULL, request_speedup = NULL")
    found = experiment(filled, SPECS, TextFilter())
    assert found.outcome(BEST_FIXED).tokens_per_second is None and found.outcome(BEST_FIXED).regret == 0
    assert found.leader is None and found.speedups("fixed:near") == (None, None)
    assert "2 texts" in str(replay(lab, SPECS)) and "2 texts" in str(sweep(lab, "ucb", "draft length", 1, 4, 9))


def test_a_sweep_that_cannot_be_gets_a_sentence(lab: Lab) -> None:
    for policy, setting, range, said in (
        ("ucb", "beta", (-1, 1, 3), "beta must be a number from 0 to 100"),
        ("ucb", "reward", (0, 1, 3), "cannot be swept; choose one of: beta, draft length"),
        ("nonsense", "beta", (0, 1, 3), "choose one of"),
        ("ucb", "beta", (0, 1, 99), "Points must be 2 to 25"),
    ):
        status = sweep(lab, policy, setting, *range)[lab.sweeping.status]
        assert said in status and 'role="alert"' in status


@pytest.mark.parametrize(
    ("query", "run"), [({"tab": "lab", "run": "2"}, 2), ({"run": "2"}, None), ({"tab": "lab", "run": "x1"}, None)]
)
def test_a_link_names_a_run(filled: Workbench, query: dict[str, str], run: float | None) -> None:
    lab, asked = Lab(filled), visit(**query)
    assert lab.restore(asked)[-2:] == (run, run or gr.skip())


def test_a_page_without_a_link_replays_nothing(filled: Workbench) -> None:
    """Gradio takes a generator that yields nothing for one that empties every output."""
    assert list(Lab(filled).replay_linked(visit(), None)) == [gr.skip()]


def test_the_tab_is_built_with_the_page(filled: Workbench) -> None:
    """What is chosen while an answer is under way is answered too."""
    page, _ = laid_out(lab := Lab(filled))
    fields = {field._id for field in lab.texts.fields}
    (chosen,) = [fn for fn in page.fns.values() if fn.name == "refresh"]
    assert fields < {id for id, _ in chosen.targets} and chosen.trigger_mode == "always_last"
    assert [fn.name for fn in page.fns.values()].count("cancel") == 2


def test_a_newer_choice_is_not_written_over(lab: Lab) -> None:
    key, fields = bench_of(lab), lab.texts.fields[:3]
    shown = lab.texts.refresh(key, ALL_SUITES, ["<i>letters</i>"], "", 50, None)
    assert not any("value" in shown[field].constructor_args for field in fields)
    shown = lab.texts.refresh("gone", "gone", ["gone", "<i>letters</i>"], "", 50, None)
    bench, suite, tasks = (shown[field] for field in fields)
    assert (bench.value, suite.value, tasks.value) == (key, ALL_SUITES, ["<i>letters</i>"])


def test_all_that_computes_runs_on_the_devices_thread(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
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
    watch(RecordedCosts, "add")
    assert "without running a model" in replay(lab, SPECS)[lab.status]
    assert "at 2 values" in sweep(lab, "ucb", "beta", 0.1, 1, 2)[lab.sweeping.status]
    assert threads and all(name.startswith("device") for name in threads)


def held_after_the_first(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Every replay is a turn of its own; all after the first wait for the event."""
    monkeypatch.setattr(service_jobs, "TURN_SECONDS", 0.0)
    go, replay, made = threading.Event(), Recorded.replay, list[int]()

    def held(*args: Any, **named: Any) -> Any:
        made.append(1)
        assert len(made) == 1 or go.wait(30)
        return replay(*args, **named)

    monkeypatch.setattr(Recorded, "replay", held)
    return go


def test_who_no_longer_watches_ends_the_replays(filled: Workbench, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    go = held_after_the_first(monkeypatch)
    watching = lab.replay(visit(), bench_of(lab), ALL_SUITES, [], "", 50, None, SPECS)
    id = next(watching)[lab.buttons.id]
    job = filled.jobs.find(id, ExperimentJob)
    assert job and not job.done
    watching.close()
    go.set()
    assert job.wait(30) and job.result is None and job.error is None


def test_stop_ends_the_replays(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    go = held_after_the_first(monkeypatch)
    watching = lab.replay(visit(), bench_of(lab), ALL_SUITES, [], "", 50, None, SPECS)
    id = next(watching)[lab.buttons.id]
    lab.buttons.cancel(id)
    go.set()
    *_, last = watching
    run, stop = (last[button] for button in lab.buttons.both)
    assert "Stopped" in last[lab.status] and run.interactive and not stop.interactive


def test_costs_are_read_once(filled: Workbench, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every replay, sweep and draft length: the rounds of a run are read the first time only."""
    read: list[int] = []
    timed_rounds = queries.timed_rounds
    monkeypatch.setattr(queries, "timed_rounds", lambda path, ids: (read.extend(ids), timed_rounds(path, ids))[1])
    short = SamplingParams(max_new_tokens=8, draft_length=2)
    assert filled.submit(Request("abd", "ucb", short)).wait(60) and filled.store.flush()
    replay(lab, ["ucb"])
    assert read == [1, 2, 3, 4]
    replay(lab, ["ucb", "random"])
    sweep(lab, "ucb", "draft length", 1, 4, 4)
    assert read == [1, 2, 3, 4]
    assert filled.submit(Request("abe", "ucb", short)).wait(60) and filled.store.flush()
    replay(lab, ["ucb"])
    assert read == [1, 2, 3, 4, 5]
