"""Pages of results: whole as they are served, with nothing of a prompt that a browser, a sheet or LaTeX would run."""

import argparse
import csv
import io
import json
import random
import re
import shlex
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from PIL import Image
from starlette.testclient import TestClient

from drafters.sampling import SamplingParams
from multidraft.bench.runner import seed_of
from multidraft.bench.suites import SuiteItem, load_suite, spread
from multidraft.commands import bench
from multidraft.commands.options import check_decoding, limited, split_specs
from multidraft.replay import advice
from multidraft.service import lab
from multidraft.service.batch import BatchJob
from multidraft.service.lab import LabWork, Verdicts
from multidraft.service.unfamiliar import UNFAMILIAR
from multidraft.service.workbench import Workbench
from multidraft.ui.result_pages import drawing, pages
from multidraft.ui.result_pages.conditions import bibtex
from multidraft.ui.result_pages.pages import PICTURES, ResultPages
from multidraft.ui.result_pages.picture import _drawable, _font_of, wrapped
from multidraft.ui.tabs.play.recorded import recorded_runs
from multidraft.ui.tabs.results.view import list_html
from storage import experiments
from storage.run import Baseline
from storage.store import Store
from tests.multidraft.ui.building import opened, results_of
from tests.runs import make_round, make_run

EVIL = '=1+1"><script>alert(1)</script>{{7*7}} & % 中'
ROUNDS = [make_round(index, drafter="=math<b>") for index in range(3)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two batches of six prompts, of which the second took twice as long, and a race; all texts are hostile."""
    path = tmp_path_factory.mktemp("history") / "runs.db"
    slow = [make_round(index, draft_seconds=0.011) for index in range(3)]
    with Store(path) as store:
        for batch, rounds in (("a", ROUNDS), ("b", slow)):
            for number in range(6):
                for policy in ("ucb", "fixed:math"):
                    values = {"batch_id": batch, "source": "batch", "version": f"1+{batch}", "policy": policy}
                    store.add(make_run(prompt=f"{EVIL}{number}", task=EVIL, suite=EVIL, rounds=rounds, **values))
            store.note(batch, EVIL)
        for policy in ("ucb", "autoregressive"):
            store.add(make_run(prompt=EVIL, policy=policy, rounds=ROUNDS, batch_id="r", source="race"))
    return path


@pytest.fixture(scope="module")
def browser(path: Path) -> Iterator[TestClient]:
    with opened(results_of(path)) as client:
        yield client


PLACES = ["run/1", "batch/a", "race/r", "comparison/a/b"]


@pytest.mark.parametrize("place", PLACES)
def test_a_page_shows_the_result_and_can_be_previewed_and_cited(browser: TestClient, place: str) -> None:
    page = browser.get(f"/result/{place}")
    assert page.status_code == 200 and page.headers["Content-Type"].startswith("text/html")
    address = f"http://testserver/result/{place}"
    assert f'<meta property="og:image" content="{address}.png">' in page.text
    assert f'<meta property="og:url" content="{address}">' in page.text and 'property="og:title" content="' in page.text
    assert "<svg" in page.text and "@misc{multidraft-" in page.text and "card c0ffee" in page.text
    assert f"src=&#34;http://testserver/embed/{place}&#34;" in page.text
    assert "<script" not in page.text and "math<b>" not in page.text and "49" not in page.text.split("<main>")[0]


@pytest.mark.parametrize("place", PLACES)
def test_the_files_of_a_result(browser: TestClient, place: str) -> None:
    svg = browser.get(f"/result/{place}.svg")
    assert svg.headers["Content-Type"].startswith("image/svg+xml") and ElementTree.fromstring(svg.text) is not None
    assert "<script" not in svg.text
    image = Image.open(io.BytesIO(browser.get(f"/result/{place}.png").content))
    assert image.size == (1200, 630) and len(image.getcolors(1 << 20) or ()) > 5
    lines = list(csv.DictReader(io.StringIO(browser.get(f"/result/{place}.csv").text)))
    assert lines and not any((cell or "").startswith("=") for line in lines for cell in line.values())
    assert json.loads(browser.get(f"/result/{place}.json").text)


@pytest.mark.parametrize("bold", [False, True])
def test_a_png_has_the_signs_of_figures(bold: bool) -> None:
    said = "2.13× (1.28–4.29) of “pocket”, ± ≈ −1 ← →, Käse, Ω ★"
    assert _drawable(said, _font_of(25, bold)) == said.replace("★", "*")
    assert _font_of(25, True).getname() != _font_of(25, False).getname()


def test_a_frame_runs_nothing_and_may_stand_anywhere(browser: TestClient) -> None:
    frame = browser.get("/embed/batch/a")
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors *"
    assert frame.headers["Content-Security-Policy"] == policy
    assert "<svg" in frame.text and 'href="http://testserver/result/batch/a"' in frame.text


def test_figures_are_those_of_the_runs(browser: TestClient) -> None:
    first = next(csv.DictReader(io.StringIO(browser.get("/result/batch/a.csv").text)))
    assert float(first["speedup"]) == pytest.approx(2.0)  # 9 tokens in 30 ms, at 150 tokens/s without drafters
    pair = next(csv.DictReader(io.StringIO(browser.get("/result/comparison/a/b.csv").text)))
    assert float(pair["decode_speed_by_clock_b_over_a"]) == pytest.approx(0.5) and pair["verdict"] == "lower speed-up"
    page = browser.get("/result/comparison/a/b").text
    assert "version (1+a → 1+b)" in page and "B has the lower speed-up" in page
    assert page.count('<a href="../../run/') == 24, "two policies on six prompts, on both sides"
    assert "By prompt, one run each (12 rows)" in page and ">Request speed-up, B over A</th>" in page
    assert "<dt>Version, A</dt>" in page and page.count("c0ffee") == page.split("<h2>Cite")[1].count("c0ffee") + 1
    assert "They were timed" in page and "By the clock: speeds themselves" in page
    note = page.split("<h2>Cite this</h2>")[1].split("note = ")[1].split("\n")[0]
    assert note.startswith("{A: multidraft 1, commit a;") and ". B: multidraft 1, commit b;" in note
    picture = browser.get("/result/comparison/a/b.svg").text
    assert "higher in A, version 1+a" in picture and "higher in B, version 1+b" in picture and ">0.8×<" in picture
    assert "version 1+a → 1+b" in picture


@pytest.mark.parametrize(
    "place", ["run/99", "run/x", "run/", "batch/none", "comparison/a", "nothing", "run/1.exe", "a/b/c/d"]
)
def test_an_unknown_result_is_not_found(browser: TestClient, place: str) -> None:
    answer = browser.get(f"/result/{place}")
    assert answer.status_code == 404 and "has no such result" in answer.text
    if not place.endswith(".exe"):
        assert answer.headers["Content-Type"].startswith("text/html") and "All results" in answer.text


def test_what_cannot_be_compared_is_said(browser: TestClient) -> None:
    answer = browser.get("/result/comparison/a/r")
    assert answer.status_code == 422 and "no prompt in common" in answer.text
    answer = browser.get("/result/comparison/a/a")
    assert answer.status_code == 422 and "cannot be compared with itself" in answer.text


def test_addresses_of_the_app_have_the_tags_of_what_they_name(path: Path) -> None:
    results = results_of(path)
    assert "Rate" not in results.tags({}, "https://x")
    tags = results.tags({"batch": "a", "tab": "batch"}, "https://x")
    assert 'content="https://x/result/batch/a.png"' in tags and "<script" not in tags
    assert results.tags({"run": "nope"}, "https://x") == results.tags({"race": "gone"}, "https://x")


def test_the_apps_own_address_has_a_picture(path: Path) -> None:
    results = results_of(path)
    assert '<meta property="og:image" content="https://x/result/front.png">' in results.tags({}, "https://x")
    browser = opened(results)
    assert Image.open(io.BytesIO(browser.get("/result/front.png").content)).size == (1200, 630)


def test_an_answer_that_may_make_no_sense_is_called_so_on_its_page_and_in_its_preview(path: Path) -> None:
    results = results_of(path, fits=lambda card, prompt: False)
    browser = opened(results)
    for place in ("run/1", "race/r"):
        page = browser.get(f"/result/{place}").text
        assert f'<meta property="og:description" content="{UNFAMILIAR}' in page and f">{UNFAMILIAR}</p>" in page
        assert "The prompt looks unlike the tasks of this pool." in browser.get(f"/result/{place}.svg").text
    odd = results_of(path, fits=lambda card, prompt: card != "c0ffee" or not prompt.endswith("3"))
    page = opened(odd).get("/result/batch/a").text
    assert ">1 of the 6 prompts looks unlike the tasks of this pool:" in page
    assert UNFAMILIAR not in opened(results_of(path)).get("/result/run/1").text


def test_a_noisy_run_says_so_in_plain_words(tmp_path: Path) -> None:
    rounds = [make_round(index) for index in range(4)]
    with Store(path := tmp_path / "runs.db") as store:
        for each in (0.01, 1 / 150):  # twice as fast or more, and cannot tell
            store.add(make_run(rounds=rounds, baseline=Baseline("prefix", 6, each, 0.002, 0.4)))
    browser = opened(results_of(path))
    faster, unknown = (browser.get(f"/result/run/{id}").text for id in (1, 2))
    assert "as fast as without drafters, on a busy machine." in faster
    assert "on a machine too busy to tell whether decoding was faster or slower." in unknown


def test_a_page_says_once_which_calls_were_saved_and_what_it_is(browser: TestClient) -> None:
    page, title = browser.get("/result/run/1").text, "UCB: 9 tokens with 3 calls of the target model instead of 9"
    assert f"<h1>{title}</h1>" in page and page.count(f">{title}<") == 1, "not in the picture as well"
    assert ">UCB: 9 tokens with 3 calls" in browser.get("/result/run/1.svg").text and ">One block per token, " in page
    assert '<a href="http://testserver/">Try it</a>' in page
    assert page.index(">Output<") < page.index("md-legend") < page.index("md-round")


def test_a_race_shows_the_text_once_and_says_that_it_is_that_of_plain_decoding(tmp_path: Path) -> None:
    with Store(path := tmp_path / "runs.db") as store:
        for batch, gap in (("r", 0.0), ("tie", 0.1)):
            for policy in ("ucb", "autoregressive"):
                rounds = [make_round(index) for index in range(3)]
                values = {"batch_id": batch, "source": "race", "lossless": True, "near_tie_gap": gap}
                store.add(make_run(prompt="It ends.", policy=policy, rounds=rounds, **values))
    browser = opened(results_of(path))
    page, tie = (browser.get(f"/result/race/{batch}").text for batch in ("r", "tie"))
    assert "Both outputs are identical, token by token (9 tokens). The output is identical to plain decoding" in page
    assert page.count("<summary>The same text under ") == 1 and page.index("md-legend") < page.index("md-round")
    assert "near-ties apart" in tie and "Race: “It ends.” – Speed-up" in page
    assert "The output is identical to plain decoding" in browser.get("/result/run/1").text


def test_pictures_are_drawn_once_and_not_all_are_held(path: Path) -> None:
    results = results_of(path)
    browser = opened(results)
    results._drawn.update({str(number): b"" for number in range(PICTURES)})
    for _ in range(2):
        assert browser.get("/result/run/1.png").content.startswith(b"\x89PNG")
    assert len(results._drawn) == PICTURES and "0" not in results._drawn


def test_timings_too_noisy_are_no_headline(tmp_path: Path) -> None:
    path, rounds = tmp_path / "runs.db", [make_round(index) for index in range(4)]
    noisy = Baseline("prefix", 6, 1 / 150, 0.002, 0.4)
    with Store(path) as store:
        for policy in ("ucb", "autoregressive"):
            store.add(make_run(policy=policy, rounds=rounds, batch_id="r", source="race", baseline=noisy))
    page = opened(results_of(path)).get("/result/race/r").text
    assert "<h1>UCB saves 67 % of the target&#39;s calls on 1 prompt, timed on a busy machine</h1>" in page
    _, said = re.findall(r'<td class="md-figure">(.*?)</td>', page)[:2]  # of whole requests
    assert said == "too noisy" and f">{said}</text>" in page, "and so in the picture"
    assert said in list_html(path, experiments.listed(path), False)


def test_a_sampled_text_is_not_called_the_same(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        for id, temperature in (("g", 0.0), ("s", 1.0)):
            store.add(make_run(rounds=ROUNDS, temperature=temperature, batch_id=id, source="batch"))
    browser = opened(results_of(path))
    same, distribution = "So the text stays the same", "So the text follows the same distribution"
    for greedy, sampled in (("run/1", "run/2"), ("batch/g", "batch/s")):
        assert same in browser.get(f"/result/{greedy}").text
        assert distribution in browser.get(f"/result/{sampled}").text


def test_the_line_at_1_runs_through_no_figure() -> None:
    bars = [drawing.Bar("ucb", "UCB", 0.0, 0.42, 0.93, "0.42–0.93×"), drawing.Bar("exp3", "EXP3", 1.0, shown="1.00×")]
    svg = drawing.bars("title", "subtitle", bars, "foot", "unit").svg()
    *_, before = svg.split(">0.42–0.93×</text>")[0].split("<rect ")
    x, width = (float(re.findall(rf'(?:^| ){name}="([\d.]+)"', before)[0]) for name in ("x", "width"))
    line = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="2"', svg)
    assert "picture-ground" in before and len(line) == 1 and x < float(line[0]) < x + width
    assert svg.index(f'<rect x="{line[0]}"') < svg.index(before)


def test_no_part_of_a_title_is_lost_and_keys_tell_results_apart() -> None:
    title = "Rate (ours, with a long name of its settings) decodes 1.62× as fast as no drafter on 28 prompts of my30"
    shown = drawing.bars(title, "subtitle", [], "foot", "unit").svg()
    assert "…" not in shown and all(f">{line}</text>" in shown for line in wrapped(title, 32, 1080))
    made = {"version": "1", "created_at": "2026", "hardware": None, "dtype": None, "pool": "p", "card_hash": None}
    keys = {bibtex(f"comparison/{'a' * 32}/{id * 32}", "t", [made], "x", [""]).split(",")[0] for id in "bc"}
    assert len(keys) == 2


def test_bibtex_holds_nothing_that_latex_would_run() -> None:
    made = {"version": "0.1.0+ab_c", "created_at": "2026-11-23T", "pool": "my_pool", "card_hash": None}
    made |= {"hardware": "CPU #1", "dtype": "float32"}
    entry = bibtex("run/1", r"\input{x} 50 % & 2.0×", [made], "http://x/{}", [""])
    assert r"\textbackslash{}input\{x\} 50 \% \& 2.0$\times$" in entry and r"my\_pool, card unknown" in entry
    assert "multidraft 0.1.0, commit ab\\_c" in entry and "url = {http://x/%7B%7D}" in entry
    assert re.search(r"urldate = \{\d{4}-\d\d-\d\d\}", entry)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_an_address_that_only_this_machine_can_open_is_not_cited(host: str) -> None:
    made = {"created_at": "2026-01-02", "version": "0.1.0", "pool": "p", "card_hash": "", "hardware": "", "dtype": ""}
    assert "url" not in bibtex("run/1", "t", [made], f"http://{host}:7860/result/run/1", [""])


@pytest.mark.parametrize("place", ["race/\0", "run/\x08\U0010add5", "comparison/1/\x7f\r"])
def test_an_address_of_control_characters_leads_nowhere(browser: TestClient, place: str) -> None:
    page = browser.get(f"/result/{quote(place)}")
    assert page.status_code == 404 and 'href="http://testserver' in page.text


def test_the_page_of_a_batch_says_which_drafters_to_keep(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [SuiteItem(str(number), text) for number, text in enumerate(("abc abd", "bcd bce", "cde cdf"))]
    batch = BatchJob(workbench, items, ["ucb", "random"], SamplingParams(max_new_tokens=16, draft_length=4))
    assert workbench.jobs.submit(batch).wait(60) and workbench.store.flush()
    verdicts = Verdicts(LabWork(workbench))
    browser = opened(ResultPages(verdicts, lambda: recorded_runs()[-1]))
    monkeypatch.setattr(pages, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(advice, "FAR_OFF", 100.0)  # such short runs are mostly noise
    page = browser.get(f"/result/batch/{batch.id}").text
    assert "lab_policy=random&amp;lab_policy=ucb%3Areward%3Dbe" in page or "be&amp;lab_policy=random" in page
    assert "Working out which drafters" in page and 'http-equiv="refresh"' in page and "<script" not in page
    (job,) = verdicts._jobs.values()
    workbench.jobs.left(job.caller.session)
    assert not job.cancelled.is_set(), "it is others' too"
    monkeypatch.setattr(pages, "WAIT_SECONDS", 30.0)
    page = browser.get(f"/result/batch/{batch.id}").text
    assert "Replayed on 3 recorded texts" in page and 'http-equiv="refresh"' not in page
    assert "Policies, replayed" in page and "Drafters under " in page and page.count("md-verdict") == 1
    (job,) = verdicts._jobs.values()
    assert browser.get(f"/result/batch/{batch.id}").text == page and [*verdicts._jobs.values()] == [job]
    assert not (job._texts or job._live), "verdicts are kept, not what they are of"


def test_a_batch_that_cannot_be_replayed_says_so_on_its_page(workbench: Workbench, path: Path) -> None:
    verdicts = Verdicts(LabWork(workbench))
    said = pages.advice_on(verdicts, experiments.listed(path, limit=1)[0]["id"])
    assert "No advice on drafters and draft length: no run can be replayed" in said.line and not said.verdict


def test_a_verdict_that_failed_is_tried_again(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = Verdicts(LabWork(workbench))
    with monkeypatch.context() as locked:
        locked.setattr(lab, "recorded_texts", lambda *_: 1 / 0)
        assert verdicts.job("a").wait(30) and "ZeroDivisionError" in str(verdicts._jobs["a", 0].error)
    job = verdicts.job("a")
    assert job.wait(30) and "no run can be replayed" in str(job.error)


@pytest.mark.parametrize("changes", [{}, None, {"suite": "mine"}, {"pool": "mine"}, {"streams": 2}, {"seed": 1}])
def test_a_command_runs_the_prompts_of_a_bundled_suite_again(tmp_path: Path, changes: dict[str, Any] | None) -> None:
    items = spread(load_suite("pocket").items, 6)
    if changes is None:
        random.Random(3).shuffle(items)
    libraries, of_it = {"python": "3.12.1", "torch": "2.13.0"}, {"batch_id": "a", "source": "bench", "suite": "pocket"}
    with Store(path := tmp_path / "runs.db") as store:
        for item in items:
            for policy in ("autoregressive", "ucb:beta=0.1,reward=be", "fixed:math"):
                values = of_it | {"temperature": 0.5} | (changes or {})
                seed = values.pop("seed", seed_of(3, item))
                store.add(make_run(prompt=item.prompt, policy=policy, seed=seed, libraries=libraries, **values))
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", opened(results_of(path)).get("/result/batch/a").text))
    assert facts["Libraries"] == "python 3.12.1, torch 2.13.0"
    assert facts["Texts at once"] == str((changes or {}).get("streams", 1))
    if changes:
        assert "Run it again" not in facts
        return
    assert facts["Seed"] == "3"
    command = shlex.split(unescape(re.sub("<.*?>", "", facts["Run it again"])))
    assert command[:4] == ["python", "-m", "multidraft", "bench"]
    parser = argparse.ArgumentParser()
    bench.add(parser)
    asked = parser.parse_args(command[4:])
    assert sorted(limited(load_suite(asked.suites[0]), asked.limit).items, key=items.index) == items
    specs = split_specs(asked.policies)
    assert (asked.pool, specs) == ("pocket", ["ucb:beta=0.1,reward=be", "fixed:math"])
    check_decoding(asked, specs)
    assert (asked.max_new_tokens, asked.draft_length, asked.temperature, asked.top_p) == (6, 3, 0.5, 1.0)
    assert (asked.top_k, asked.seed, asked.repeat, asked.stream) == (0, 3, 1, changes is None)
