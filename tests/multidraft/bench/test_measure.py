from typing import Any

import pytest

from multidraft.bench.baseline import settle_baseline
from storage.run import Run
from tests.runs import make_round, make_run

ANSWER = (5, 6, 9, 5)


def run(tokens: tuple[int, ...], **changes: Any) -> Run:
    return make_run(rounds=[make_round(0, tokens=tokens)], **{"lossless": True, **changes})


@pytest.mark.parametrize(
    "tokens, answers_gap, gap, lossless",
    [
        (ANSWER, None, None, True),
        ((5, 6, 7, 5), None, None, False),  # diverges
        ((5, 6, 7, 5), None, 1e-6, True),  # diverges where rounding may decide
        ((5, 6, 7, 5), 1e-6, None, True),  # the same, seen from the answer
        (ANSWER[:3], None, 1e-6, False),  # ends too early: no near-tie explains that
        ((*ANSWER, 5), None, 1e-6, False),  # ends too late
    ],
)
def test_a_run_is_lossless_if_it_agrees_with_the_answer(tokens, answers_gap, gap, lossless):
    answer = run(ANSWER, policy="autoregressive", near_tie_gap=answers_gap)
    other = run(tokens, near_tie_gap=gap)
    settle_baseline([answer, other])
    assert other.scores.lossless is lossless and answer.scores.lossless
    assert other.baseline and other.baseline.kind == "answer"


@pytest.mark.parametrize("status", ["cancelled", "error"])
def test_a_run_that_was_cut_short_is_not_held_to_the_answers_length(status):
    other = run(ANSWER[:2], status=status)
    settle_baseline([run(ANSWER, policy="autoregressive"), other])
    assert other.scores.lossless
