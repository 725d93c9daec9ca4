"""Figures of several runs."""

from __future__ import annotations

import pytest

from multidraft.bench.summary import Figures, Row
from tests.runs import make_round, make_run

ROUNDS = [make_round(index) for index in range(3)]


def test_of_texts_decoded_beside_others_there_is_no_rate() -> None:
    """Their rounds held the work for the others too."""
    alone, beside = (Row.of("1", "math", make_run(rounds=ROUNDS, baseline=None, streams=n)) for n in (1, 4))
    found = Figures.of([beside])
    assert found.tokens_per_second is None and found.mean_accepted_tokens == 3.0
    assert Figures.of([alone, beside]).tokens_per_second == pytest.approx(9 / alone.seconds)
