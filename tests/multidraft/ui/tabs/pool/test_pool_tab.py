"""Where a pool is loaded from and what is told of it: the tab, its list, the line of every page, the endpoint."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from drafters.pool import load_pool
from drafters.progress import Step
from drafters.sampling import SamplingParams
from multidraft.service.pool_loading import Loading, PoolLoader
from multidraft.service.workbench import Workbench
from multidraft.serving.api import Api
from multidraft.ui import pool_line
from multidraft.ui.pool_line import PoolLine, news_text, progress_text
from multidraft.ui.tabs.play.tab import Play
from multidraft.ui.tabs.pool.tab import PoolTab, known_pools, loading_html, pool_html, pools_html
from multidraft.ui.tabs.race.tab import Race
from storage.store import Store
from tests.multidraft.service.test_pool_loading import ended
from tests.multidraft.ui.building import after, built, dashboard_of
from tests.multidraft.ui.tabs.visits import click, visit

PARAMS = SamplingParams(max_new_tokens=8, draft_length=4)
PROMPT = "abc abd"


def loading_of(title: str, hub: bool = False) -> Loading:
    """One that has not begun."""
    card = SimpleNamespace(title=title, sources=[SimpleNamespace(id="a/b" if hub else None)])
    workbench = SimpleNamespace(pool=lambda: None)
    return Loading(workbench, "x", card, lambda *_: None)


def test_progress_is_told_in_words_and_bytes() -> None:
    loading = loading_of("A <pool>")
    assert "Loading A &lt;pool&gt;" in loading_html(loading)
    loading.note(Step("fetching", "the target, a/b", 1, 6, 1_250_000_000, 5_000_000_000))
    html = loading_html(loading)
    assert "step 1 of 6: fetching the target, a/b (1.2 GiB of 4.7 GiB)" in html and "0 s so far" in html
    assert 'max="5e+09" value="1.25e+09"' in html
    loading.note(Step("loading", "drafter 'b'", 4, 6))
    assert 'max="6" value="3"' in loading_html(loading)


def test_a_hub_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_line, "SILENT_SECONDS", 0.0)
    loading = loading_of("A pool", hub=True)
    assert "No data from the Hub for 0 s; it will be asked again" in progress_text(loading)  # for its configuration
    loading.note(Step("fetching", "the target, a/b", 1, 2))
    assert "No data from the Hub" in progress_text(loading)
    loading.note(Step("loading", "the target", 2, 2))
    assert "No data from the Hub" not in progress_text(loading)
    assert "No data from the Hub" not in progress_text(loading_of("A pool"))  # of files on this machine


def test_the_line_tells_little_and_the_tab_all() -> None:
    loading = loading_of("A pool", hub=True)
    loading.note(Step("fetching", "the target, a/b", 1, 6, 5, 10))
    assert news_text(loading) == "Loading A pool, step 1 of 6 …" and "a/b" in progress_text(loading)
    loading.phase, loading.error = "waiting", "a long reason"
    assert "a long reason" not in news_text(loading) and "a long reason" in progress_text(loading)
    loading.phase = "done"
    loading.ended.set()
    assert news_text(loading) == news_text(None) == ""


# What the page shows and follows.


def test_tabs_follow_the_pool(own_bench: Workbench, other_card: Path) -> None:
    ended(PoolLoader(own_bench).start(other_card))
    play = built(Play(own_bench), own_bench)
    shown = play.follow("abc", "fixed:near", 500, "")
    length, _, _, _, draft, _ = (shown.get(field) for field in play.settings)
    task, policy, turns, anew, legend, note = (
        shown[part] for part in (play.task, play.policy, play.turns, play.anew, play.legend, play.note)
    )
    assert task.choices == [("letters", "letters")] and policy.value == "rate-hedge"
    assert {"fixed:far", "fixed:copy"} <= {spec for _, spec in policy.choices} >= {"ucb"}
    assert "fixed:near" not in {spec for _, spec in policy.choices}
    assert (length.maximum, length.value, draft.value) == (63, 63, 6)
    assert (
        "copy" in legend and "<b>Another &lt;pool&gt;.</b> It copies." in note and turns == () and anew.visible is False
    )
    kept = play.follow("abc", "ucb", 20, "<span>an output</span>")
    assert kept[play.policy].value == "ucb" and kept[play.settings[0]].value == 20 and play.legend not in kept
    race = built(Race(own_bench), own_bench)
    assert race.follow("abc", 20, None, *race.usual)[race.task].choices == [("letters", "letters")]


def test_the_list_tells_what_is_loaded_and_what_a_pool_needs(own_bench: Workbench, other_card: Path) -> None:
    (other_card.parent.parent / "broken.yaml").write_text("name: [")
    html = pools_html(pools := known_pools(other_card.parent.parent), own_bench.pool.card, True)
    assert {"pocket", "pocket-heads", str(other_card)} <= {pool.source for pool in pools}
    assert "Another &lt;pool&gt;" in html and "is not valid YAML" in html
    assert "1 × small language model, 1 × suffix automaton" in html
    assert "7 × small language model (int8), 1 × prompt lookup" in html and "the CPU<" in html
    assert html.count("<button") == len(pools) - 1 and 'aria-label="Load Pocket pool"' in html
    assert "<button" not in pools_html(pools, own_bench.pool.card, False)
    assert pools_html(pools, own_bench.pool.card, True, busy=True).count("disabled>Load") == len(pools) - 1
    ended(PoolLoader(own_bench).start(other_card))
    assert pools_html(pools, own_bench.pool.card, True).count("Loaded</p>") == 1


def test_the_tab_says_whose_weights_a_drafter_uses(kinds_card: Path) -> None:
    html = pool_html(load_pool(kinds_card), "a CPU", "1.0")
    assert html.count("shared with eagle-1<") == html.count("shared with eagle-3<") == 1
    assert html.count("Latencies are averages of the last rounds on this server") == 1


def test_the_tab_says_how_many_tokens_a_drafter_can_draft() -> None:
    html = pool_html(pool := load_pool("pocket"), "a CPU", "1.0")
    tokens = [drafter.outputs for drafter in pool.drafters]
    assert 0 < tokens[0] < pool.target.vocab_size and tokens[-1] == 0
    assert all(f">{count:,}<" in html for count in tokens[:-1])


def test_the_tab_loads_known_pools_only_and_only_where_it_may(
    own_bench: Workbench, other_card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = built(PoolTab(PoolLoader(own_bench)), own_bench)

    def clicked(card: str) -> dict[Any, Any]:
        return after(tab.load(click(pool=card)))

    assert "no longer exists" in clicked("card.yaml")[tab.status]
    tab.loader.cards = other_card.parent
    shown = clicked("card.yaml")
    assert "is in use" in shown[tab.status] and shown[tab.stop_loading].visible is False
    assert "Loaded</p>" in shown[tab.known]
    assert "<h2>Another &lt;pool&gt;</h2>" in shown[tab.pool]  # at once, whenever the page notices the switch
    tab.loader.cards = (failing := tmp_path / "failing.yaml").parent
    failing.write_text(other_card.read_text().replace("path: ", "path: no"))
    shown = clicked("failing.yaml")
    assert "could not be loaded" in shown[tab.status] and shown[tab.stop_loading].visible is False
    assert str(tmp_path) not in shown[tab.status] + shown[tab.known], "where cards lie is not told"
    failing.write_text(other_card.read_text().replace("path: ", f"path: {other_card.parent}/"))
    tab.loader.cards = other_card.parent / "far"
    failing.rename(tab.loader.cards / "failing.yaml")
    shown = clicked("failing.yaml")
    assert "no longer exists" in shown[tab.status] and "outside the folder far" in shown[tab.known]
    assert "disabled" not in shown[tab.known]
    closed = built(PoolTab(PoolLoader(own_bench, allowed=False)), own_bench)
    shown = after(closed.load(click(pool=str(other_card))))
    pools = shown[closed.known]
    assert "Switching pools is off" in shown[closed.status] and "MULTIDRAFT_SWITCH" in pools and "<button" not in pools
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    pools = closed.state()[closed.known]
    assert "MULTIDRAFT_POOL</code>" in pools and "MULTIDRAFT_SWITCH" not in pools


def test_the_pool_in_use_is_loaded_without_some_drafters_and_whole_again(own_bench: Workbench, pool_card: Path) -> None:
    tab = built(PoolTab(PoolLoader(own_bench, cards=pool_card.parent)), own_bench)
    asked = tab.linked(visit(without_of="tiny", without="far,gone"))  # as a link of a verdict does, once
    assert tab.linked(visit(with_pool="tiny")) == [], "a link of Play"
    shown = tab.show(asked)
    assert shown[tab.left_out].value == ["far"] and shown[tab.asked] == [] and tab.show()[tab.left_out].value == []
    assert tab.show()[tab.left_out].choices == [(name, name) for name in ("near", "lookup", "far", "alone")]
    shown = after(tab.load_without(["far"]))
    assert "without far is in use" in shown[tab.status] and "Loaded without far" in shown[tab.known]
    assert tab.show()[tab.left_out].value == ["far"] and shown[tab.known].count("<button") == len(known_pools()) + 1
    assert "keep at least one" in after(tab.load_without(["near", "lookup", "far", "alone"]))[tab.status]
    after(tab.load(click(pool="card.yaml")))
    assert len(own_bench.pool.drafters) == 4
    tab.loader.allowed = False
    assert "is off" in after(tab.load_without(["far"]))[tab.status]


def test_a_link_that_is_about_another_pool_says_so_and_chooses_nothing(
    own_bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(gr, "Warning", told.append)
    tab = built(PoolTab(PoolLoader(own_bench)), own_bench)
    shown = tab.show(tab.linked(visit(without_of="<b>", without="far")))
    said = "The link leaves drafters out of pool &lt;b&gt;, but tiny is loaded"
    assert told == [f"{said}: load &lt;b&gt;, then follow the link again."]
    assert shown[tab.left_out].value == [] and shown[tab.asked] == []


def test_the_dashboard_s_filter_follows_unless_it_was_changed(store: Store) -> None:
    dashboard = built(dashboard_of(store, "other", "a GPU"))
    before = {"pool": "tiny", "hardware": "a CPU"}
    now, pool, hardware = (dashboard.follow(before, "tiny", "a CPU")[part] for part in dashboard.followers)
    assert (now["pool"], pool.value, hardware.value) == ("other", "other", "a GPU")
    assert set(dashboard.follow(before, "a third", "another")) == {dashboard.usual_place}


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
    tab = built(Play(own_bench), own_bench)

    def status_of(pool: str) -> str:
        return tab.restore(visit(prompt="abc", with_pool=pool))[tab.status]

    assert (
        "made with pool &lt;b&gt;, but tiny is loaded: speed will differ, and so will the text, unless both"
        in status_of("<b>")
    )
    assert "made with" not in status_of("tiny")
