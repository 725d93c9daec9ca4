"""Follow-up prompts, on a small pool whose target has a chat form."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import tiny
from tests.app import served_here
from tests.browser.conftest import visiting
from tests.browser.test_play import DONE, set_length
from tests.history import recorded

TEMPLATE = "{% for m in messages %}{{ 'a' if m['role'] == 'user' else 'b' }}{{ m['content'] }}{% endfor %}b"


@pytest.fixture(scope="module")
def talk(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, Path]]:
    """The page of such a pool, and its history."""
    folder = tmp_path_factory.mktemp("talk")
    card = tiny.write_pool(folder)
    (folder / "target" / "chat_template.jinja").write_text(TEMPLATE)
    history = folder / "runs.db"
    with served_here(card, history) as address, visiting(chromium, address) as page:
        yield page, history


def say(page: Page, text: str) -> None:
    page.locator("#prompt textarea").fill(text)
    page.locator("#run").click()


def test_a_follow_up_continues_the_conversation_until_it_is_begun_anew(talk: tuple[Page, Path]) -> None:
    page, history = talk
    set_length(page, 10)
    said = page.locator("#conversation li p")
    say(page, "abc")
    expect(page.locator(DONE)).to_contain_text("10 tokens")
    expect(said).to_have_text(["abc"])
    expect(page.locator("#prompt textarea")).to_have_value("")
    answer = "".join(page.locator("#output .md-token").all_text_contents())
    say(page, "de")
    expect(said).to_have_count(3)
    assert said.all_text_contents() == ["abc", answer, "de"]
    expect(page.locator(DONE)).to_contain_text("10 tokens")
    say(page, "f" * 40)
    expect(page.locator("#status [role=alert]")).to_contain_text("Begin a new conversation")
    expect(page.locator("#prompt textarea")).to_have_value("f" * 40)
    expect(page.locator("#output .md-token")).not_to_have_count(0)  # the last answer is still there
    page.locator("#new-conversation").click()
    expect(said).to_have_count(0)
    say(page, "de")
    expect(said).to_have_text(["de"])
    expect(page.locator(DONE)).to_contain_text("10 tokens")
    lengths = [run.generation.prompt_tokens for run in recorded(history)]
    assert lengths == [4, 4 + 5 + 10, 5]  # newest first; a letter before each turn and one for the answer


def test_a_pool_of_single_prompts_offers_no_conversation(page: Page) -> None:
    expect(page.locator("#new-conversation")).to_have_count(0)
