"""Another pool is loaded from the page, and every open page follows."""

import json
import re
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from tests import tiny
from tests.app import serve, served_here
from tests.browser.conftest import ACTION_MS, visiting
from tests.browser.test_play import DONE
from tests.drafters.checkpoints.test_hub import at_hub
from tests.hub import FakeHub

PROMPT = "a badge"
Visit = Callable[[str], Page]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHub]:
    """A Hub with the models of the tiny pool."""
    folder = tmp_path_factory.mktemp("hub")
    tiny.write_pool(folder / "pool")
    for name in ("target", "near"):
        shutil.copytree(folder / "pool" / name, folder / "hub" / "tiny" / name)
    with FakeHub(folder / "hub").serving() as served:
        yield served


@pytest.fixture(scope="module")
def app(hub: FakeHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An app that starts on the tiny pool, with a folder of three cards: itself, one from the Hub, one that fails."""
    folder = tmp_path_factory.mktemp("switching")
    card = tiny.write_pool(folder / "cards" / "tiny", title="Tiny pool")
    content = yaml.safe_load(card.read_text())
    drafters = [{"name": "small", "kind": "lm", "id": "tiny/near"}, {"name": "copy", "kind": "suffix"}]
    from_hub = {**content, "name": "from-hub", "title": "From the Hub", "target": {"id": "tiny/target"}}
    (folder / "cards" / "hub.yaml").write_text(yaml.safe_dump({**from_hub, "drafters": drafters}))
    nobody = {**from_hub, "name": "nobody", "title": "Nobody's pool", "target": {"id": "tiny/nobody"}}
    (folder / "cards" / "nobody.yaml").write_text(yaml.safe_dump({**nobody, "drafters": drafters}))
    with pytest.MonkeyPatch.context() as patch, served_here(card, folder / "runs.db", folder / "cards") as address:
        at_hub(hub.address, folder / "hf", patch)
        yield address


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Visit]:
    """Opens a page for each call."""
    with ExitStack() as ended:
        yield lambda address: ended.enter_context(visiting(chromium, address))


def ask_for(page: Page, title: str) -> None:
    page.get_by_role("tab", name="Pool").click()
    page.get_by_role("button", name=f"Load {title}", exact=True).click()


def run(page: Page, policy: str) -> None:
    page.locator("#policy input").fill(policy)
    page.locator("#policy").get_by_role("option", name=policy).first.click()
    page.locator("#run").click()
    expect(page.locator(DONE)).to_be_visible()


def test_a_failing_pool_is_explained_and_the_old_one_goes_on(visit: Visit, app: str) -> None:
    page = visit(app)
    ask_for(page, "Nobody's pool")
    problem = page.locator("#pool-status [role=alert]")
    expect(problem).to_contain_text("Nobody's pool could not be loaded: the Hub repository tiny/nobody does not exist")
    expect(problem).to_be_in_viewport()
    expect(page.locator("#pool-line")).to_contain_text("Tiny pool is loaded. Nobody's pool could not be loaded")
    page.get_by_role("tab", name="Play").click()
    page.locator("#prompt textarea").fill(PROMPT)
    run(page, "One drafter: near")


def test_all_pages_follow_a_switch_and_keep_what_was_typed(visit: Visit, app: str, hub: FakeHub) -> None:
    mine, other = visit(app), visit(app)
    other.locator("#prompt textarea").fill(PROMPT)
    other.get_by_role("tab", name="Race").click()
    other.locator("#race-prompt textarea").fill("bed")
    other.get_by_role("tab", name="Play").click()
    hub.flow.clear()
    ask_for(mine, "From the Hub")
    expect(mine.locator("#pool-status")).to_contain_text("step 1 of 5: fetching the target, tiny/target (")
    expect(mine.locator("#pool-status")).to_contain_text("KiB of")
    other.bring_to_front()
    expect(other.locator("#pool-line")).to_contain_text("Tiny pool is loaded. Loading From the Hub, step 1")
    run(other, "One drafter: near")  # the app goes on meanwhile
    hub.flow.set()
    expect(other.locator("#pool-line")).to_have_text("From the Hub is loaded.")
    expect(other.get_by_text("The pool is now From the Hub")).to_be_visible()
    assert other.locator("#prompt textarea").input_value() == PROMPT
    assert other.locator("#race-prompt textarea").input_value() == "bed"
    expect(other.locator("#policy input")).to_have_value("RateHedge (ours) · rate-hedge")
    assert other.locator("#output .md-token").count() > 0
    run(other, "One drafter: small")
    expect(other.locator("#legend")).to_contain_text("small")
    mine.bring_to_front()
    expect(mine.locator("#pool-status")).to_contain_text("From the Hub is in use")
    expect(mine.locator("#pool")).to_contain_text("from-hub")
    expect(mine.locator(".md-pool-loaded")).to_have_count(1)
    new = visit(f"{app}?with_policy=fixed%3Asmall")  # what a page shows that is opened now
    expect(new.locator("#legend")).to_contain_text("small")
    expect(new.locator("#policy input")).to_have_value(re.compile("One drafter: small"))
    expect(new.get_by_text("The pool is now")).to_have_count(0)
    new.locator("#prompt textarea").fill(PROMPT)
    run(new, "One drafter: copy")


@pytest.mark.long
def test_a_pool_of_hub_models_is_loaded_in_the_background_at_the_start(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = tmp_path / "card.yaml"
    drafters = [{"name": "copy", "kind": "suffix"}]
    target = {"id": "tiny/target"}
    card.write_text(yaml.safe_dump({"name": "wanted", "title": "Wanted", "target": target, "drafters": drafters}))
    for name, value in {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}.items():
        monkeypatch.setenv(name, value)
    with serve(str(card), tmp_path / "runs.db") as address:
        until = time.monotonic() + ACTION_MS / 1000
        while (report := pool_of(address))["loading"] and time.monotonic() < until:
            time.sleep(0.2)
        assert (report["name"], report["drafters"]) == ("wanted", ["copy"])
        told = "serves pool 'pocket' until pool 'wanted' is there"  # once the page is up, maybe after the pool is there
        while told not in (tmp_path / "log").read_text() and time.monotonic() < until:
            time.sleep(0.1)
        assert told in (tmp_path / "log").read_text()


def pool_of(address: str) -> dict[str, Any]:
    """What the endpoint ``pool`` tells."""
    ask = urllib.request.Request(f"{address}gradio_api/run/pool", b'{"data": []}', {"Content-Type": "application/json"})
    with urllib.request.urlopen(ask, timeout=30) as answer:
        return dict(json.load(answer)["data"][0])
