"""Where a pool is loaded from and what is told of it: the tab, its list, the line of every page, the endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from drafters.pool import load_pool
from drafters.progress import Step
from multidraft.sampling import SamplingParams
from multidraft.ui import app, pool_list
from multidraft.ui.api import Api
from multidraft.ui.dashboard import Dashboard
from multidraft.ui.play import Play
from multidraft.ui.pool_line import PoolLine
from multidraft.ui.pool_list import known_pools, loading_html, news_text, pools_html, progress_text
from multidraft.ui.pool_loading import Loading, PoolLoader
from multidraft.ui.pool_tab import PoolTab, pool_html
from multidraft.ui.race import Race
from multidraft.ui.worker import Workbench
from storage.store import Store
from tests.multidraft.ui.test_page import Visitor
from tests.multidraft.ui.test_pool_loading import ended

PARAMS = SamplingParams(max_new_tokens=8, draft_length=4)
PROMPT = "abc abd"


def test_progress_is_told_in_words_and_bytes() -> None:
    loading = Loading("x", "A <pool>")
    assert "Loading A &lt;pool&gt;" in loading_html(loading)
    loading.note(Step("fetching", "the target, a/b", 1, 6, 1_250_000_000, 5_000_000_000))
    html = loading_html(loading)
    assert "step 1 of 6: fetching the target, a/b (1.2 GiB of 4.7 GiB)" in html and "0 s so far" in html
    assert 'max="5e+09" value="1.25e+09"' in html
    loading.note(Step("loading", "drafter 'b'", 4, 6))
    assert 'max="6" value="3"' in loading_html(loading)


def test_a_hub_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_list, "SILENT_SECONDS", 0.0)
    loading = Loading("x", "A pool", from_hub=True)
    assert "Nothing has come from the Hub for 0 s; it is asked again" in progress_text(loading)  # for its configuration
    loading.note(Step("fetching", "the target, a/b", 1, 2))
    assert "Nothing has come" in progress_text(loading)
    loading.note(Step("loading", "the target", 2, 2))
    assert "Nothing has come" not in progress_text(loading)
    assert "Nothing has come" not in progress_text(Loading("x", "A pool"))  # of files on this machine


def test_the_line_tells_little_and_the_tab_all() -> None:
    loading = Loading("x", "A pool", from_hub=True)
    loading.note(Step("fetching", "the target, a/b", 1, 6, 5, 10))
    assert news_text(loading) == "Loading A pool, step 1 of 6 …" and "a/b" in progress_text(loading)
    loading.phase, loading.error = "waiting", "a long reason"
    assert "a long reason" not in news_text(loading) and "a long reason" in progress_text(loading)
    loading.end("done")
    assert news_text(loading) == news_text(None) == ""


# What the page shows and follows.


def test_tabs_follow_the_pool(own_bench: Workbench, other_card: Path) -> None:
    page = app._build(own_bench, loader := PoolLoader(own_bench))
    assert page is not None
    ended(loader.start(other_card))
    play = Play(own_bench)
    task, *_, policy, length, draft, turns, _, anew, legend, note = play.follow("fixed:near", 500, "")
    assert task.choices == [("letters", "letters")] and policy.value == "rate-hedge"
    assert {"fixed:far", "fixed:copy"} <= {spec for _, spec in policy.choices} >= {"ucb"}
    assert "fixed:near" not in {spec for _, spec in policy.choices}
    assert (length.maximum, length.value, draft.value) == (63, 63, 6)
    assert "copy" in legend and "Another &lt;pool&gt;" in note and turns == () and anew.visible is False
    kept = play.follow("ucb", 20, "<span>an output</span>")
    assert kept[5].value == "ucb" and kept[6].value == 20 and kept[11] == gr.skip()
    task, *_ = Race(own_bench).follow(20, None)
    assert task.choices == [("letters", "letters")]


def test_the_list_tells_what_is_loaded_and_what_a_pool_needs(
    own_bench: Workbench, other_card: Path, pool_card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other_card.parent.parent / "broken.yaml").write_text("name: [")
    html = pools_html(pools := known_pools(other_card.parent.parent), own_bench.pool.card, True)
    assert {"pocket", "pocket-heads", str(other_card)} <= {pool.source for pool in pools}
    assert "Another &lt;pool&gt;" in html and "cannot read the pool card" in html
    assert "1 × small language model, 1 × suffix automaton" in html
    assert html.count("<button") == len(pools) - 1 and 'aria-label="Load Pocket pool"' in html
    assert "<button" not in pools_html(pools, own_bench.pool.card, False)
    assert pools_html(pools, own_bench.pool.card, True, busy=True).count("disabled>Load") == len(pools) - 1
    ended(PoolLoader(own_bench).start(other_card))
    assert pools_html(pools, own_bench.pool.card, True).count("Loaded</p>") == 1


def test_the_tab_says_whose_weights_a_drafter_uses(kinds_card: Path) -> None:
    html = pool_html(load_pool(kinds_card), "a CPU", "1.0")
    assert html.count("shared with eagle-1<") == html.count("shared with eagle-3<") == 1


class Click:
    """Stands for ``gr.EventData``."""

    def __init__(self, **data: Any):
        self.__dict__.update(data)


def test_the_tab_loads_known_pools_only_and_only_where_it_may(
    own_bench: Workbench, other_card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = PoolTab(PoolLoader(own_bench))
    *_, (status, *_) = tab.load(Click(pool=str(other_card)))  # type: ignore[arg-type]
    assert "no such pool" in status
    tab.loader.cards = other_card.parent
    *_, (status, stop, pools, now, *_) = tab.load(Click(pool=str(other_card)))  # type: ignore[arg-type]
    assert "is in use" in status and stop.visible is False and "Loaded</p>" in pools
    assert "<h2>Another &lt;pool&gt;</h2>" in now  # at once, whenever the page notices the switch
    tab.loader.cards = (failing := tmp_path / "failing.yaml").parent
    failing.write_text(other_card.read_text().replace("path: ", "path: no"))
    *_, (status, stop, pools, *_) = tab.load(Click(pool=str(failing)))  # type: ignore[arg-type]
    assert "could not be loaded" in status and stop.visible is False and "disabled" not in pools
    closed = PoolTab(PoolLoader(own_bench, allowed=False))
    first, (status, *_) = closed.load(Click(pool=str(other_card)))  # type: ignore[arg-type]
    assert "Switching pools is off" in status and "MULTIDRAFT_SWITCH" in first[2] and "<button" not in first[2]
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    assert "MULTIDRAFT_POOL</code>" in closed.state()[2] and "MULTIDRAFT_SWITCH" not in closed.state()[2]


def test_the_dashboard_s_filter_follows_unless_it_was_changed(store: Store) -> None:
    dashboard = Dashboard(store, lambda: {"pool": "other", "hardware": "a GPU"})
    before = {"pool": "tiny", "hardware": "a CPU"}
    now, pool, hardware = dashboard.follow(before, "tiny", "a CPU")
    assert (now["pool"], pool.value, hardware.value) == ("other", "other", "a GPU")
    assert dashboard.follow(before, "a third", "another")[1:] == [gr.skip(), gr.skip()]


def test_the_endpoint_tells_the_pool(own_bench: Workbench, other_card: Path) -> None:
    line = PoolLine(loader := PoolLoader(own_bench))
    assert line.pool()["name"] == "tiny" and line.pool()["loading"] is False
    ended(loader.start(other_card))
    told = line.pool()
    assert (told["name"], told["drafters"], told["draft_length"]) == ("other", ["far", "copy"], 6)
    assert told["card_hash"] == own_bench.pool.card_hash and told["status"] == "Another <pool> is loaded."
    *_, report = Api(own_bench).generate(PROMPT, "ucb", max_new_tokens=4)
    assert report["pool"] == "other"


def test_a_link_from_another_pool_says_so(own_bench: Workbench) -> None:
    status, *_ = Play(own_bench).restore(Visitor(prompt="abc", with_pool="<b>"))  # type: ignore[arg-type]
    assert (
        "made with pool &lt;b&gt;, but tiny is loaded: speed will differ, and so will the text, unless both" in status
    )
    status, *_ = Play(own_bench).restore(Visitor(prompt="abc", with_pool="tiny"))  # type: ignore[arg-type]
    assert "made with" not in status
