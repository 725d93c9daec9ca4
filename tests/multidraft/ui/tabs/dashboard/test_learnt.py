from types import SimpleNamespace
from typing import Any

from multidraft.service.lab import COLD, ROUTED, TAUGHT, Learnt
from multidraft.ui.tabs.dashboard.learnt import learnt_html


def learnt(**seconds: float) -> str:
    replays: dict[str, Any] = {
        spec: [SimpleNamespace(emitted=[2, 2], rounds=2, seconds=seconds[name])] * 4
        for name, spec in (("cold", COLD), ("routed", ROUTED), ("taught", TAUGHT))
        if name in seconds
    }
    return learnt_html(Learnt([None] * 4, replays))  # type: ignore[list-item]


def test_what_was_learnt_is_what_goes_beyond_the_router_where_there_is_one() -> None:
    shown = learnt(cold=3.0, routed=2.0, taught=1.0)
    assert "relative to a cold start" in shown and "relative to the router&#39;s start" in shown
    assert "3.00" in shown and "any gain over it was learnt" in shown
    alone = learnt(cold=3.0, taught=1.0)
    assert "relative to a cold start" in alone and "router" not in alone
