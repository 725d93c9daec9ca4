"""Pages of batches and benchmarks: what they tell, and those of the recorded examples."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl

from multidraft.ui import example
from multidraft.ui.widgets.controls import SETTINGS
from storage.run import Scores
from storage.store import Store
from tests.multidraft.ui.building import opened, results_of
from tests.runs import make_round, make_run

ROUNDS = [make_round(index) for index in range(3)]


def test_a_recorded_example_is_compared_with_the_history_but_not_opened_in_the_app(tmp_path: Path, monkeypatch) -> None:
    own, recorded = tmp_path / "own.db", tmp_path / "recorded.db"
    with Store(recorded) as store:
        for number in range(6):
            store.add(make_run(prompt=f"p{number}", rounds=ROUNDS, batch_id="a", source="batch", version="1"))
    with Store(own) as store:
        for number in range(6):
            store.add(make_run(prompt=f"p{number}", rounds=ROUNDS, batch_id="mine", source="batch", version="2"))
    monkeypatch.setattr(example, "path", lambda: recorded)
    browser = opened(results_of(own))
    page = browser.get("/result/comparison/a/mine").text
    assert "version (1 → 2)" in page and page.count('<a href="../../run/') == 6, "numbers of runs are the history's"
    assert "paired on 6 prompts, with 95 % intervals" in page
    found = browser.get("/result/comparison/a/mine.json").json()["prompts"]
    assert [line["prompt"] for line in found] == [f"p{number}" for number in range(6)]
    assert "Open in the app" not in browser.get("/result/batch/a").text
    assert "Open in the app" in browser.get("/result/batch/mine").text


def test_a_page_tells_regret_and_what_queries_began_with(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        for number in range(6):
            for policy in ("ucb", "rate-hedge"):
                run = make_run(prompt=f"p{number}", policy=policy, rounds=ROUNDS, batch_id="a", source="batch")
                store.add(replace(run, scores=Scores(regret_rounds=number - 2.0)))
    browser = opened(results_of(tmp_path / "runs.db"))
    page = browser.get("/result/batch/a").text
    assert ">Regret, rounds/prompt</th>" in page and re.search(r">0.5<small>-[\d.]+ to 2.\d</small></td>", page)
    assert (
        "RateHedge (ours) from what past queries taught, else from the router&#39;s guess" in page
        and "UCB cold" in page
    )
    data = browser.get("/result/batch/a.json").json()
    assert sorted(data["prompts"].values()) == [f"p{n}" for n in range(6)]
    assert data["rows"][0]["prompt"] in data["prompts"]


def test_intervals_of_tasks_take_some_prompts(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        for number in range(9):
            rounds = [make_round(index, verify_seconds=0.003 + number / 2000) for index in range(3)]
            task = "sums" if number < 6 else "rare"
            store.add(make_run(prompt=f"p{number}", task=task, rounds=rounds, batch_id="a", source="batch"))
    page = opened(results_of(tmp_path / "runs.db")).get("/result/batch/a").text
    table = page.split('aria-label="Policies by task"')[1]
    (rare,), (sums,) = (
        [line for line in table.split("<tr>") if f"<td>{task}</td>" in line] for task in ("rare", "sums")
    )
    interval = r"×<small>[\d.]+–"
    assert re.search(interval, sums) and not re.search(interval, rare)
    assert "for tasks with at least 6 prompts" in page


def test_top_p_and_top_k_are_told_and_compared(tmp_path: Path) -> None:
    sampled = {"temperature": 1.0, "top_p": 0.5, "top_k": 7}
    with Store(tmp_path / "runs.db") as store:
        for race, settings in (("a", sampled), ("b", {**sampled, "top_p": 1.0})):
            for policy in ("ucb", "hedge") if race == "a" else ("hedge", "ucb"):
                store.add(make_run(policy=policy, batch_id=race, source="race", seed=321, **settings))
        for seed in (1, 2):
            store.add(make_run(batch_id="repeated", source="batch", seed=seed))
    browser = opened(results_of(tmp_path / "runs.db"))
    page = browser.get("/result/race/a").text
    assert page.count("temperature 1, top-p 0.5, top-k 7") > 2 and "draft length 3, temperature 1, top-p" in page
    assert "seed 321; policies" in page and browser.get("/result/race/a.json").json()["top_p"] == 0.5
    assert ", seed" not in browser.get("/result/batch/repeated").text
    compared = browser.get("/result/comparison/a/b").text
    assert "paired on 1 prompt" in compared and "with 95 % intervals" not in compared
    assert "<dt>Start</dt>" in compared and "Start, A" not in compared, "whichever policy came first"
    assert "They differ in top-p (0.5 → 1)." in compared and "made alike" not in compared


def test_a_run_s_page_leads_to_play_with_all_that_it_was_made_with(tmp_path: Path) -> None:
    settings = {"temperature": 0.7, "top_p": 0.5, "top_k": 7, "draft_length": 4, "max_new_tokens": 24, "seed": 9}
    made = [{"prompt": "a & b 😀 100%", **settings}, {"prompt": "x" * 7000}, {"turns": (("hello", "hi"),)}]
    made.append({"draft_length": 17})
    with Store(tmp_path / "runs.db") as store:
        for one in made:
            store.add(make_run(**one))
    browser = opened(results_of(tmp_path / "runs.db"))
    run, *others = (browser.get(f"/result/run/{number}").text for number in (1, 2, 3, 4))
    (query,) = re.findall(r'<a href="[^"]*/\?([^"]*)">Run it again in Play', run)
    asked = dict(parse_qsl(unescape(query)))
    assert (asked["prompt"], asked["with_policy"]) == ("a & b 😀 100%", "ucb:beta=0.1")
    assert {name: float(asked[name]) for name in SETTINGS} == settings
    assert all("Run it again in Play" not in page for page in others), (
        "too long; within a conversation; longer drafts than the field takes"
    )


def test_outputs_of_one_policy_are_told_apart(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        for policy in ("ucb", "autoregressive", "ucb"):
            store.add(make_run(policy=policy, batch_id="r", source="race", rounds=ROUNDS))
    page = opened(results_of(tmp_path / "runs.db")).get("/result/race/r").text
    assert "<h3>UCB, run 1</h3>" in page and "The same text under UCB, run 3</summary>" in page
    assert "The same text under No drafter</summary>" in page
