"""The figures of what a watching page costs."""

from __future__ import annotations

import pytest

from multidraft.ui.streaming_cost import StreamingCost


def test_cost_and_interval_come_from_the_pairs() -> None:
    watched = [90.0, 95.0, 80.0, 100.0, 85.0, 99.0, 91.0]
    cost = StreamingCost([100.0] * 7, watched, [1.0] * 7, [1.0] * 7, [2.0] * 7, 20)
    assert cost.cost == pytest.approx(0.09)
    low, high = cost.interval or (1.0, 0.0)
    assert (low, high) == pytest.approx((0.0, 0.20)), "of seven pairs all are needed for 95 %"
    assert StreamingCost([1.0], [1.0], [1.0], [1.0], [1.0], 1).interval is None
