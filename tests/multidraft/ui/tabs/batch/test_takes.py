from datetime import UTC, datetime

from multidraft.service.workbench import Workbench
from multidraft.ui.tabs.batch.tab import Batch
from tests.multidraft.ui.building import laid_out
from tests.runs import make_run


def test_how_long_a_batch_would_take_is_said_by_what_the_newest_took(workbench: Workbench) -> None:
    tab, pool = Batch(workbench), workbench.pool
    pool.costs = pool.new_costs()
    assert "10 prompts under 2 policies." in tab.takes("pocket", None, ["ucb", "exp3"], 10, 100, 1), "nothing is known"
    pool.costs.plain.clock(0, 0.01)
    at_most = tab.takes("pocket", None, ["ucb", "exp3"], 10, 100, 1)
    assert (
        "10 prompts under 2 policies: about 30 s at most on a quiet machine" in at_most
    )  # 1,000 tokens of the two and the baseline
    made_on = {"card_hash": pool.card_hash, "hardware": workbench.hardware, "dtype": pool.dtype, "max_new_tokens": 20}
    for minute in range(5):  # a run of at most 20 tokens takes a minute
        at = datetime(2026, 1, 1, 0, minute, tzinfo=UTC)
        workbench.store.add(make_run(**made_on, source="batch", batch_id="a", created_at=at))
    late = datetime(2026, 1, 3, tzinfo=UTC)  # the server was down
    workbench.store.add(make_run(**made_on, source="batch", batch_id="a", created_at=late))
    assert workbench.store.flush()
    assert "under 2 policies: about 17 min, by the newest" in tab.takes("pocket", None, ["ucb", "exp3"], 10, 17, 1)
    assert tab.takes("pocket", None, [], 10, 100, 1) == ""
    assert "did you mean ucb?" in tab.takes("pocket", None, ["ucb", "ucbb"], 10, 100, 1)
    assert tab.takes("pocket", None, ["ucb"], 10, 100, 4) == tab.takes(None, None, ["ucb"], 0, 100, 1) == ""
    assert tab.takes("pocket", None, ["ucb"], None, 100, 1) == tab.takes("pocket", None, ["ucb"], -1, 100, 1) == ""


def test_it_is_told_anew_when_a_batch_has_ended_and_when_the_tab_is_opened(workbench: Workbench) -> None:
    page, place = laid_out(tab := Batch(workbench), workbench)
    events = {target for fn in page.fns.values() if fn.fn == tab.takes for target in fn.targets}
    assert {(place._id, "select"), (tab.summary._id, "change")} < events
