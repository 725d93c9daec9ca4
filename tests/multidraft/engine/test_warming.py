"""What a warm-up leaves behind."""

import pytest

import multidraft as md
from drafters.costs import CostMeter
from drafters.pool import Pool
from multidraft.engine.warming import UNREAD, warm_up
from tests import tiny


def test_the_warm_up_tells_evaluations_that_have_to_read_a_text_from_others(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread, evaluated = list[float](), CostMeter.evaluated
    monkeypatch.setattr(
        CostMeter, "evaluated", lambda meter, spent: [unread.append(meter.unread.mean), evaluated(meter, spent)]
    )
    warm_up(pool)
    most = min(UNREAD, pool.target.window // 2)
    assert most > 20 and unread.count(most) == 2 and min(unread) < 0.2 * most and pool.costs.evaluation.weight


def test_the_warm_up_verifies_drafts_of_all_lengths(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """So what long ones cost does not hang on the first that a visitor's text calls for."""
    scored, score = set[int](), pool.target.score
    monkeypatch.setattr(pool, "draft_length", 12)
    monkeypatch.setattr(pool.target, "score", lambda draft: [scored.add(len(draft)), score(draft)][1])
    warm_up(pool)
    assert scored == set(range(13)) and pool.costs.verify.x / pool.costs.verify.weight > 3.0


def test_a_warm_up_changes_no_output(pool: Pool, pool_card) -> None:
    (prompt,), params = tiny.texts(1, 20, 3), md.SamplingParams(12, temperature=1.0)
    warm_up(pool)
    cold = md.generate(md.load_pool(pool_card), prompt, "normal-hedge", params, 5)
    warm = md.generate(pool, prompt, "normal-hedge", params, 5)
    assert warm.token_ids == cold.token_ids and [r.drafter for r in warm.rounds] == [r.drafter for r in cold.rounds]


@pytest.mark.benched
def test_a_drafter_that_fails_does_not_keep_a_pool_from_being_warmed_up(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = pool.drafters[-1]
    for name in ("prepare", "gamma", "propose"):
        monkeypatch.setattr(failing, name, lambda *arguments, **named: 1 / 0)
    warm_up(pool)
    assert pool.costs.evaluation.weight and pool.costs.verify.weight
