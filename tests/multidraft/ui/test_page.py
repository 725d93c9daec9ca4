"""The page as a whole, and its endpoints for programs."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from gradio.state_holder import SessionState

from drafters.costs import CostMeter
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.bench.measure import Request
from multidraft.service import workbench as workbench_module
from multidraft.service.lab import LabWork, Verdicts
from multidraft.service.limits import Limits
from multidraft.service.pool_loading import PoolLoader
from multidraft.service.queue import CALLER, Caller
from multidraft.service.workbench import RunJob, Workbench
from multidraft.ui import app
from multidraft.ui.app import build
from multidraft.ui.page import Page
from multidraft.ui.tabs.play import tab as play_tab
from multidraft.ui.tabs.play.tab import Play
from multidraft.ui.tabs.pool.tab import NO_MATRIX, PoolTab, pool_html
from storage.problems import StorageError
from storage.records import PHASES
from storage.run import Origin
from storage.store import Store
from tests.history import recorded
from tests.multidraft.ui.building import after, built
from tests.multidraft.ui.tabs.visits import visit


@pytest.fixture(scope="module")
def page(unused: Workbench) -> gr.Blocks:
    return build(unused, PoolLoader(unused), Verdicts(LabWork(unused)))


@pytest.fixture(scope="module")
def unused_play(unused: Workbench) -> Play:
    return built(Play(unused), unused)


def test_no_event_puts_a_sign_of_work_on_what_it_changes(page: gr.Blocks) -> None:
    """With each message the page would update the signs of all components that ever had one."""
    events = [fn for fn in page.fns.values() if fn.fn and fn.api_visibility == "private"]
    assert len(events) > 50 and all(fn.show_progress_on == [] for fn in events)


def test_a_visitors_page_is_not_described_once_more(page: gr.Blocks) -> None:
    """Half a MiB for each visitor, and all that is shown."""
    visitor = SessionState(page)
    shown = next(block for block in page.blocks.values() if isinstance(block, gr.HTML))
    visitor[shown._id] = gr.HTML("own", render=False)
    visitor._update_config(shown._id)
    visitor._update_value_in_config(shown._id, "a long text")
    assert len(page.blocks) > 100 and not any(visitor.config_values.values())
    assert visitor[shown._id].value == "own" and page.blocks[shown._id] is shown
    assert visitor.blocks_config.fns == page.fns and all(part["props"] for part in page.get_config_file()["components"])
    own = shown._id, [shown._id], visitor[shown._id]
    built = visitor.blocks_config.config_for_block(*own, next(iter(page.renderables)))
    assert built["props"]["value"] == "own", "what is rendered for one visitor is described to that one"


def test_opening_the_page_waits_once_in_the_queue(page: gr.Blocks) -> None:
    """For the history: what else the address says is known without it."""
    fns = [fn for fn in page.fns.values() if fn.fn]
    opened = [fn for fn in fns if any(kind == "load" for _, kind in fn.targets)]
    assert [fn.name for fn in opened if fn.queue] == ["restore"] and len(opened) > 3


def test_one_visitor_s_reading_keeps_no_other_waiting(page: gr.Blocks) -> None:
    waiting = [fn for fn in page.fns.values() if fn.fn and fn.queue]
    assert page._queue.default_concurrency_limit == app.READERS > 1
    assert {fn.name for fn in waiting if fn.concurrency_limit == 1} == {"preview"}  # an upload may be large


def test_no_field_rounds_what_was_typed(page: gr.Blocks) -> None:
    """What is no whole number is refused, where the field still shows it."""
    numbers = [block for block in page.blocks.values() if isinstance(block, gr.Number)]
    assert numbers and all(field.precision is None for field in numbers)


def test_the_explanation_names_every_tab(page: gr.Blocks) -> None:
    tabs = [block.label for block in page.blocks.values() if isinstance(block, gr.Tab)]
    assert len(tabs) == 7 and all(f"<i>{tab}</i>" in app._HEADER for tab in tabs)


def test_pool_page_names_all_that_is_loaded(pool: Pool) -> None:
    html = pool_html(pool, "A <fast> chip", "1.0")
    for drafter in pool.drafters:
        assert drafter.name in html
    assert "A &lt;fast&gt; chip" in html and pool.card_hash[:8] in html and "float32" in html
    size = sum(p.numel() for p in pool.target.model.parameters())
    assert f"{size:,} parameters ({4 * size / 1024:.0f} KiB)" in html


def test_pool_page_says_whose_output_a_quantised_target_writes(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Quantised" not in pool_html(pool, "chip", "1.0")
    target = pool.card.target.model_copy(update={"quantization": "nf4"})
    monkeypatch.setattr(pool, "card", pool.card.model_copy(update={"target": target}))
    assert "Quantised</dt><dd>to nf4: outputs are exactly this quantised target" in pool_html(pool, "chip", "1.0")


def test_pool_page_shows_what_was_measured_and_what_suits_which_task(workbench: Workbench) -> None:
    workbench.pool.costs = CostMeter(len(workbench.pool.drafters))  # as if nothing had run on it
    tab = built(PoolTab(PoolLoader(workbench)), workbench)
    before = tab.show()
    assert before[tab.hint] == NO_MATRIX and not before[tab.matrix].visible
    params = SamplingParams(16, draft_length=4)
    job = workbench.submit(Request("abc", "round-robin", params, origin=Origin("play", "letters")))
    assert job.wait(60)
    workbench.store.flush()
    shown = tab.show()
    chart = shown[tab.matrix]
    assert shown[tab.hint] == "" and chart.visible and json.loads(chart.value["plot"])["data"][0]["x"] == ["letters"]
    assert "measured with the first run" in before[tab.pool] and "measured with the first" not in shown[tab.pool]


def say(
    tab: Play, prompt: str = "abc abd", policy: str | None = "ucb", tokens: float | None = 8, turns: tuple = ()
) -> Iterator[dict[Any, Any]]:
    """What a greedy run shows."""
    return tab.run(turns, prompt, policy, tokens, 0, 1, 0, 4, 0)


def play(workbench: Workbench, **asked: Any) -> tuple[Play, list[dict[Any, Any]]]:
    tab = built(Play(workbench), workbench)
    return tab, list(say(tab, **asked))


def text_of(output: str) -> str:
    return re.sub(r"<del.*?</del>|<[^>]+>", "", output)


def test_the_first_update_has_text(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play_tab, "AT_ONCE_SECONDS", 60.0)
    tab, updates = play(workbench)
    first, last = (text_of(shown[tab.output]) for shown in (updates[0], after(updates)))
    assert first and last.startswith(first)


def test_a_longer_one_is_shown_as_it_comes(workbench: Workbench, gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play_tab, "AT_ONCE_SECONDS", 0.05)
    tab = built(Play(workbench), workbench)
    parts = say(tab)
    assert "Ended" not in next(parts)[tab.status]
    gate.open()
    assert "Ended" in after([*parts])[tab.status]


def test_play_streams_to_the_end(workbench: Workbench, gate) -> None:
    tab = built(Play(workbench), workbench)
    parts = say(tab)
    first = next(parts)
    gate.open()
    last = after([first, *parts])
    run, stop = tab.buttons.both
    assert first[run].interactive is False and first[stop].interactive is True
    assert last[run].interactive is True and last[stop].interactive is False
    assert "8 tokens" in last[tab.status] and "md-token" in last[tab.output]
    assert last[tab.output].startswith(first[tab.output])
    assert "Every round in detail" in last[tab.details]
    assert first[tab.copy].interactive is False and last[tab.copy].interactive is True  # there is a run to copy
    assert first[tab.own_page].interactive is False
    assert last[tab.own_page].interactive is True and last[tab.own_page].link == "result/run/1"


def test_a_page_that_was_loaded_again_shows_its_run(workbench: Workbench, gate) -> None:
    tab = built(Play(workbench), workbench)
    parts = say(tab)
    id = next(parts)[tab.buttons.id]
    assert [*tab.again(id, visit(prompt="of a link"))] == [*tab.again("none", visit())] == [{tab.status: gr.skip()}]
    before = CALLER.set(Caller("someone", "loaded again"))
    again = tab.again(id, visit())
    shown = next(again) | next(again)
    parts.close()
    assert shown[tab.policy] == "ucb" and shown[tab.settings[0]] == 8 and shown[tab.buttons.id] == id
    gate.open()
    shown = after(again)
    CALLER.reset(before)
    assert "8 tokens" in shown[tab.status] and "md-token" in shown[tab.output]


def test_the_run_as_json(workbench: Workbench) -> None:
    tab, updates = play(workbench)
    record = json.loads(Path(after(updates)[tab.download].value["path"]).read_text())
    assert record["prompt"] == "abc abd" and record["policy"] == "ucb" and record["status"] == "completed"
    assert [token for r in record["rounds"] for token in r["tokens"]] == record["token_ids"]
    assert record["max_new_tokens"] == 8 and record["seed"] == 0 and record["source"] == "play"
    assert record["hardware"] == workbench.hardware and record["version"] == workbench.version
    assert sum(record[f"{phase}_seconds"] for phase in PHASES) == pytest.approx(record["decode_seconds"])
    assert record["speedup"] > 0 and record["request_speedup"] > 0 and record["baseline_kind"] == "answer"


def test_a_pool_of_single_prompts_keeps_the_prompt_and_no_turns(workbench: Workbench) -> None:
    tab, updates = play(workbench)
    assert not {tab.prompt, tab.conversation, tab.turns, tab.anew} & set(after(updates))


def talking(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Play:
    """A tab on a pool that knows conversations."""
    monkeypatch.setattr(type(workbench.pool), "conversational", True)
    return built(Play(workbench), workbench)


def test_an_answer_becomes_a_turn_and_no_conversation_begins_meanwhile(
    workbench: Workbench, gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = talking(workbench, monkeypatch)
    parts = say(tab, "abc", turns=(("ab", "de"),))
    first = next(parts)
    gate.open()
    assert first[tab.prompt] == "" and "abc" in first[tab.conversation] and tab.turns not in first
    assert first[tab.anew].interactive is False
    end = after(parts)
    assert end[tab.turns][0] == ("ab", "de") and end[tab.turns][1][0] == "abc" and 0 < len(end[tab.turns][1][1]) <= 8
    assert end[tab.anew].interactive is True


def test_a_run_stopped_in_line_is_no_turn_and_gives_the_prompt_back(
    workbench: Workbench, gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = talking(workbench, monkeypatch)
    ahead = workbench.submit(Request("abd", "ucb", SamplingParams(max_new_tokens=4, draft_length=4)))
    assert gate.reached.wait(30)
    parts = say(tab, "abc", turns=(("ab", "de"),))
    next(parts)
    (job,) = (job for job in workbench.jobs._found.values() if isinstance(job, RunJob) and job is not ahead)
    tab.buttons.cancel(job.id)
    gate.open()
    end = after(parts)
    assert end[tab.prompt] == "abc" and tab.turns not in end and end[tab.anew].interactive is True
    assert "de" in end[tab.conversation] and "abc" not in end[tab.conversation]


def test_rejected_guesses_are_struck_through(workbench: Workbench) -> None:
    tab, updates = play(workbench, policy="fixed:far", tokens=30)
    output = after(updates)[tab.output]
    rejected = re.findall(r"<del[^>]*>([^<]*)</del>", output)
    assert rejected and all(rejected)
    assert output.count("data-corrected") <= len(rejected)


def restored(tab: Play, **query: str) -> dict[Any, Any]:
    return tab.restore(visit(**query))


def test_a_link_restores_prompt_policy_and_settings(unused_play: Play) -> None:
    tab, settings = unused_play, {"max_new_tokens": "20", "temperature": "0.5", "seed": "3"}
    shown = restored(tab, prompt="abc <b>", with_policy="ucb", run="7", **settings)
    length, heat, *_, seed = tab.settings
    named = "Taken from the link: prompt, policy, max new tokens, temperature, seed. Press Run."
    assert named in shown[tab.status] and shown[tab.prompt] == "abc <b>" and shown[tab.policy].value == "ucb"
    assert ("UCB · ucb", "ucb") in shown[tab.policy].choices, "the page may have been built with those of another pool"
    assert {field: shown.get(field) for field in tab.settings if field in shown} == {length: 20, heat: 0.5, seed: 3}
    shown = restored(tab, with_policy="ucb:beta=0.1")
    assert shown[tab.policy].value == "ucb:beta=0.1"
    shown = restored(tab, prompt="a", with_policy="<b>", policy="ucb", seed="x", top_p="0")
    status = shown[tab.status]
    assert 'role="alert"' in status and "choose one of" in status and "<b>" not in status
    assert "Taken from the link: prompt. Left at the default: top-p must be" in status and status.count("Left") == 1
    assert shown[tab.prompt] == "a" and tab.policy not in shown


def test_other_parameters_of_the_address_are_none_of_plays(unused_play: Play) -> None:
    query = {"tab": "dashboard", "run": "3", "policy": "ucb"}
    assert unused_play.restore(visit(**query)) == {unused_play.status: gr.skip()}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"max_new_tokens": "<b>many</b>"}, "max new tokens must be a number"),
        ({"max_new_tokens": "0"}, "max new tokens"),
        ({"max_new_tokens": "1234567"}, "max new tokens must be at most 50 here, got 1,234,567"),
        ({"draft_length": "400"}, "draft length must be at most 16 here, got 400"),
        ({"temperature": "99"}, "temperature must be at most 2 here, got 99"),
        ({"temperature": "-1"}, "temperature"),
        ({"seed": "1.5"}, "seed must be a whole number"),
        ({"top_p": "0"}, "top-p must be"),
        ({"top_k": "nan"}, "top-k must be a whole number"),
    ],
)
def test_of_a_link_with_a_wrong_setting_the_rest_is_taken_and_that_is_said(
    unused_play: Play, query: dict, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unused_play.workbench, "limits", Limits(new_tokens=50))
    tab, (name,) = unused_play, query
    shown = restored(tab, **{"prompt": "abc", "seed": "3", "temperature": "0.5"} | query)
    status = shown.pop(tab.status)
    assert f"Left at the default: {words}" in status and 'role="alert"' in status and "<b>" not in status
    assert shown.pop(tab.prompt) == "abc"
    assert shown == {tab.settings[i]: v for i, of, v in ((5, "seed", 3), (1, "temperature", 0.5)) if of != name}
    assert "Nothing is taken from the link. Left at" in restored(tab, **query)[tab.status]


@pytest.mark.parametrize(
    ("prompt", "policy", "tokens", "words"),
    [
        ("", "ucb", 8, "prompt is empty"),
        ("abc", "<b>x</b>", 8, "choose one of"),
        ("abc", "", 8, "choose one of"),
        ("abc", None, 8, "choose one of"),
        ("a" * 99, "ucb", 8, "context window"),
        ("abc", "ucb", None, "Max new tokens"),
    ],
)
def test_play_says_what_is_wrong_in_the_page(
    unused_play: Play, prompt: str, policy: str | None, tokens: float | None, words: str
) -> None:
    (shown,) = say(unused_play, prompt, policy, tokens)
    status, run, stop = (shown[part] for part in (unused_play.status, *unused_play.buttons.both))
    assert words in status and 'role="alert"' in status and "<b>" not in status
    assert run.interactive is True and stop.interactive is False


def test_leaving_the_page_ends_the_run(
    workbench: Workbench, gate, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbench_module, "RETURN_SECONDS", 0.0)
    tab = built(Play(workbench), workbench)
    parts = say(tab)
    next(parts)
    assert gate.reached.wait(30)
    (job,) = workbench.jobs.listed
    parts.close()  # what Gradio does when the connection is gone
    assert job.cancelled.wait(30)
    gate.open()
    params = SamplingParams(max_new_tokens=4, draft_length=4)
    follower = workbench.submit(Request("abc", "ucb", params))
    assert follower.wait(60)
    assert store.flush()
    left = [run.generation for run in recorded(store.path) if run.generation.prompt != "abc"]
    assert all(g.status == "cancelled" and len(g.rounds) == 1 for g in left)


def test_an_unreadable_history_is_explained() -> None:
    def fail() -> None:
        raise StorageError("The database is locked by another program.")

    with Page() as page:
        page.load(fail)
    with pytest.raises(gr.Error, match="locked by another program"):
        asyncio.run(page.process_api(0, []))
