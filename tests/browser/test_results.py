from pathlib import Path

from playwright.sync_api import Page, expect

from storage.store import Store
from tests.runs import make_round, make_run


def test_two_experiments_are_found_and_compared_and_the_result_has_its_own_page(
    page: Page, address: str, history: Path
) -> None:
    with Store(history) as store:
        for batch, slow in (("earlier", 0.006), ("later", 0.003)):
            rounds = [make_round(index, verify_seconds=slow) for index in range(3)]
            for number in range(6):
                values = {"source": "bench", "batch_id": batch, "suite": "compared", "policy": "ucb", "version": batch}
                store.add(make_run(rounds=rounds, prompt=f"<b>Add {number}", **values))
        apart = {"source": "bench", "batch_id": "apart", "suite": "compared with none", "policy": "ucb"}
        store.add(make_run(rounds=rounds, prompt="Another one", **apart))
    page.goto(f"{address}?tab=results&words=compared")
    for batch in ("apart", "later"):
        page.locator(f"[data-experiment={batch}]").check()
    said = "The two results have no prompt in common; run the same suite in both."
    expect(page.locator(".md-compare [role=status]")).to_have_text(said)
    expect(page.locator(".md-link-button")).to_have_attribute("aria-disabled", "true")
    page.locator("[data-experiment=apart]").uncheck()
    page.locator("[data-experiment=later]").uncheck()
    for batch in ("later", "earlier"):  # as the list has them, the newest first
        page.locator(f"[data-experiment={batch}]").check()
    page.get_by_role("link", name="Compare the two chosen").click()
    expect(page.locator("h1")).to_contain_text("version later against earlier")
    expect(page.locator(".md-verdict")).to_contain_text("later is better")
    assert page.evaluate("document.querySelector('meta[property=\"og:image\"]').content").endswith("later.png")
    page.goto(f"{address}?tab=results&words=compared")
    expect(page.locator("[data-experiment=later]")).to_be_checked()  # still, whatever page was seen meanwhile
    expect(page.locator(".md-link-button")).not_to_have_attribute("aria-disabled", "true")
    page.locator("#sought-words input, #sought-words textarea").fill("nowhere")  # as by a paste: no key is pressed
    expect(page.locator("#experiments-list")).to_contain_text("No results match")
    page.locator("#sought-words input, #sought-words textarea").fill("compared")
    page.get_by_role("link", name="Benchmark: compared").first.click()
    expect(page.locator("figure svg")).to_contain_text("compared")
