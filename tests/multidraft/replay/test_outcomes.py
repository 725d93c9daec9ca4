"""What replays say together, on tables whose answers are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from drafters.base import Acceptances
from drafters.costs import Costs
from drafters.errors import PolicyError, UserError
from multidraft.policies import NO_DRAFTER
from multidraft.replay.outcomes import (
    DRAFT_LENGTH,
    Outcome,
    is_whole,
    mean_regret,
    numeric_settings,
    sweep,
    sweep_values,
)
from multidraft.replay.recorded import Recorded
from multidraft.replay.walk import Replayed
from tests.runs import make_run

COSTS = Costs(np.array([0.1, 0.3]), np.array([0.02, 0.0]), 1.0 + 0.05 * np.arange(5))


def recorded(table: list[list[int]], status: str = "completed", limit: int | None = None) -> Recorded:
    """A text of two drafters, ``good`` and ``bad``."""
    accepted = np.array(table)
    run = make_run(
        acceptance=Acceptances(accepted, np.full_like(accepted, 4), np.full_like(accepted, 4)),
        drafters=("good", "bad"),
        seed=0,
        draft_length=4,
        max_new_tokens=limit or accepted.shape[1],
        status=status,
        prompt="x",
    )
    return Recorded(run, COSTS)


TEXT = recorded([[3] * 12, [1] * 12])  # alone, good needs 3 rounds of four tokens and bad 6 of two


def test_outcome_adds_up_texts() -> None:
    played = [TEXT.replay("fixed:good"), TEXT.replay("fixed:bad")]
    outcome = Outcome.of(played)
    assert (outcome.texts, outcome.tokens, outcome.rounds) == (2, 24, 9)
    assert outcome.mean_accepted_tokens == pytest.approx(24 / 9)
    assert outcome.regret == pytest.approx(1.5)  # 0 and 3
    assert outcome.best_arm_ratio == pytest.approx(3 / 9)
    assert outcome.seconds == pytest.approx(sum(p.seconds or 0.0 for p in played))
    assert outcome.tokens_per_second == pytest.approx(24 / outcome.seconds)


def test_replays_without_costs_have_no_rate() -> None:
    untimed = Outcome.of([Replayed([0], [4], [3], (0,), 1)])
    assert (untimed.seconds, untimed.tokens_per_second) == (0.0, None)


def test_the_share_of_the_best_drafter_is_that_of_the_rounds_that_drafted() -> None:
    """Over all texts: rounds without a draft are in neither number."""
    idle = Replayed([NO_DRAFTER] * 90, [0] * 90, [1] * 90, (0,), 3)
    half = Replayed([0, 1, NO_DRAFTER, NO_DRAFTER], [4, 4, 0, 0], [2] * 4, (0,), 3)
    best = Replayed([1] * 8, [4] * 8, [2] * 8, (1,), 8)
    assert Outcome.of([idle, half]).best_arm_ratio == 0.5
    assert Outcome.of([idle, half, best]).best_arm_ratio == 0.9
    assert Outcome.of([idle]).best_arm_ratio is None


def test_regret_is_that_of_the_round_and_ends_at_the_mean() -> None:
    bad = TEXT.replay("fixed:bad")
    # After 2, 4, 6 … tokens good has played 1, 1, 2, 2, 3, 3 rounds.
    assert mean_regret([TEXT], [bad]).tolist() == [0, 1, 1, 2, 2, 3]
    both = mean_regret([TEXT, TEXT], [TEXT.replay("fixed:good"), bad])
    assert both.tolist() == [0, 0.5, 0.5, 1, 1, 1.5]  # the text that ends after three rounds keeps its regret


@pytest.mark.parametrize(("status", "limit"), [("completed", None), ("stopped", 40)])
def test_no_drafter_at_any_length_is_faster_than_the_best_fixed(status: str, limit: int | None) -> None:
    rng = np.random.default_rng(3)
    text = recorded(rng.integers(0, 5, (2, 33)).tolist(), status, limit)
    rates = [
        text.replay(f"fixed:{name}", None, length).tokens_per_second or 0.0
        for name in ("good", "bad")
        for length in range(1, 5)
    ]
    rates.append(text.replay("autoregressive").tokens_per_second or 0.0)
    assert text.best_fixed().tokens_per_second == pytest.approx(max(rates))


def test_plain_decoding_is_the_best_fixed_where_drafting_never_pays() -> None:
    text = recorded([[0] * 10, [0] * 10])
    best = text.best_fixed()
    assert best.rounds == 10 and best.tokens_per_second == pytest.approx(1.0)
    assert best.regret == 0


def test_values_of_a_sweep() -> None:
    assert sweep_values(0, 1, 5, log=False, whole=False) == [0, 0.25, 0.5, 0.75, 1]
    assert sweep_values(0.01, 1, 3, log=True, whole=False) == [0.01, 0.1, 1]
    assert sweep_values(1, 4, 9, log=False, whole=True) == [1, 2, 3, 4]
    assert sweep_values(1, 4, 2, log=False, whole=True) == [1, 4]


@pytest.mark.parametrize(
    ("start", "end", "points", "log", "said"),
    [(1, 1, 5, False, "smaller to a larger"), (0, 1, 5, True, "above 0"), (0, 1, 1, False, "points must be 2 to 25")],
)
def test_ranges_that_cannot_be_swept(start: float, end: float, points: int, log: bool, said: str) -> None:
    with pytest.raises(UserError, match=said):
        sweep_values(start, end, points, log=log, whole=False)


def test_what_can_be_swept() -> None:
    assert numeric_settings("ucb:reward=be") == ["beta", DRAFT_LENGTH]
    assert numeric_settings("random") == [DRAFT_LENGTH]
    whole = [is_whole("ucb", DRAFT_LENGTH), is_whole("sw-ucb:window=9", "window"), is_whole("sw-ucb", "beta")]
    assert whole == [True, True, False]
    with pytest.raises(PolicyError, match="choose one of"):
        numeric_settings("nonsense")


def test_a_sweep_replays_every_text_at_every_value() -> None:
    found = list(sweep([TEXT, TEXT], "fixed:good", DRAFT_LENGTH, [1, 3]))
    assert [(value, played.rounds) for value, played in found] == [(1, 6), (1, 6), (3, 3), (3, 3)]
    swept = dict(sweep([TEXT], "ucb:reward=be", "beta", [0.01, 2.0]))
    assert swept[2.0].arms == TEXT.replay("ucb:reward=be,beta=2").arms
    with pytest.raises(PolicyError, match="beta must be"):
        list(sweep([TEXT], "ucb:reward=be", "beta", [-1.0]))
    for length in (-1, 0):
        with pytest.raises(PolicyError, match="draft length must be at least 1"):
            list(sweep([TEXT], "fixed:good", DRAFT_LENGTH, [length]))


def test_a_shorter_draft_length_is_not_stretched_to_the_asked_one() -> None:
    short = replace(TEXT, run=replace(TEXT.run, params=replace(TEXT.run.params, draft_length=2)))
    assert short.replay("fixed:good", None, 4).lengths == short.replay("fixed:good").lengths
