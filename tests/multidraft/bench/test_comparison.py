"""Two experiments, policy by policy and prompt by prompt."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drafters.errors import UserError
from multidraft.bench.comparison import SETTLED, Comparison
from multidraft.bench.comparison_verdict import _noisy, by_clock, sentences, table
from multidraft.bench.summary import Row
from storage import experiments
from storage.store import Store
from tests.runs import make_run

ALIKE: dict[str, Any] = {"version": "1", "pool": "pocket", "hardware": "CPU", "draft_length": 8}


def rows(
    seconds: dict[str, float], prompts: int = 8, noise: float = 0.0, baseline: float = 2.0, **more: Any
) -> list[Row]:
    """A run of each policy on each prompt, longer prompts taking longer."""
    drawn = np.random.default_rng(1)
    found = []
    for prompt in range(prompts):
        for policy, each in seconds.items():
            took = each * (1 + prompt) * (1 + noise * drawn.standard_normal())
            values: dict[str, Any] = {
                "tokens": 10 * (1 + prompt),
                "rounds": 5 * (1 + prompt),
                "seconds": took,
                "request_seconds": took + 0.05 * baseline,
                "baseline_seconds": baseline * (1 + prompt),
                "baseline_request_seconds": baseline * (1 + prompt) + 0.05 * baseline,
                "tokens_per_second": 1.0,
                "speedup": baseline * (1 + prompt) / took,
                "prompt": prompt,
                **more,
            }
            found.append(Row(str(prompt), "math", policy, "completed", **values))
    return found


def test_a_difference_is_found_and_what_differs_is_named() -> None:
    made = {**ALIKE, "version": "2", "created_at": "2026-01-01T10:00:00+00:00"}
    second = [Row(**{**vars(row), "rounds": row.rounds - 1}) for row in rows({"ucb": 0.8})]
    found = Comparison.of(rows({"ucb": 1.0}), second, ({**ALIKE, "created_at": "2026-01-01T09:35:00+00:00"}, made))
    (pair,) = found.pairs
    assert pair.said == "faster" and pair.decode.value == pytest.approx(1.25) and pair.rounds.value == 180 / 172
    overall, apart, first, *_, differs, machine, _ = sentences(found)
    assert apart == "They were timed 25 minutes apart; a machine's speed may change in between."
    assert overall == "Version 2 is better for `ucb`. What to do: take version 2."
    assert first.startswith(
        "`ucb`: B has the higher speed-up; the speed-up of whole requests is 2.46× in B and 1.98× in A, 1.24×"
    )
    assert first.endswith(
        "as high; each call of the target wrote 1.05× (1.03–1.08) as many tokens in B as in A, on 8 prompts that both "
        "ran."
    )
    assert differs == "They differ in version (1 → 2)." and "no significant difference" in machine


def test_where_the_rounds_are_the_same_only_time_can_differ() -> None:
    found = Comparison.of(rows({"ucb": 1.0}), rows({"ucb": 0.8}, repeated=True), (ALIKE, {**ALIKE, "version": "2"}))
    overall, seen, same, first, *more = sentences(found)
    assert overall == "Version 2 is better for `ucb`. What to do: take version 2, if a repetition finds the same."
    assert same.startswith("Under `ucb` both made the same rounds on every prompt. What differs is time: ")
    assert "wrote 1.00× as many tokens" in first and "timed" not in "".join(more)
    assert seen.startswith("Prompts seen before: the pool had already learnt from 8 of 8 prompts when `ucb` ran in B")
    warm = Comparison.of(rows({"rate-hedge": 1.0}), rows({"rate-hedge": 0.8}, repeated=True), (ALIKE, ALIKE))
    assert sentences(warm)[1].endswith("For a fair comparison run both under `rate-hedge:start=cold`.")
    taught = [Row(**{**vars(row), "rounds": row.rounds - 1}) for row in rows({"ucb": 0.8}, repeated=True)]
    found = Comparison.of(rows({"ucb": 1.0}), taught, (ALIKE, {**ALIKE, "version": "2"}))
    assert sentences(found)[0].endswith("What to do: take version 2, but first repeat both with `start=cold`.")


def test_noise_is_not_taken_for_a_difference() -> None:
    found = Comparison.of(rows({"ucb": 1.0}), rows({"ucb": 1.0}, noise=0.2), (ALIKE, ALIKE))
    overall, _, first, same, *_ = sentences(found)
    assert overall == (
        "For `ucb` these prompts cannot tell which is better. What to do: keep A until more prompts have run under "
        "both."
    )
    assert "no significant difference" in first and "what differs is chance" in same
    assert " These prompts cannot tell which is better." in first and "Either" not in first


def test_of_many_policies_none_seems_to_differ_by_chance() -> None:
    """Of 100 comparisons of a machine with itself; more than 13 with a finding has a probability below 0.001 at 5 %.
    Each policy by itself would have had one in 5 %, one of the ten in 35 %."""
    rng, policies, wrong = np.random.default_rng(7), [f"fixed:{n}" for n in range(10)], 0
    for _ in range(100):
        sides = [
            [
                Row(**{**vars(row), "request_seconds": (row.request_seconds or 0.0) * rng.lognormal(0, 0.1)})
                for row in rows(dict.fromkeys(policies, 1.0))
            ]
            for _ in range(2)
        ]
        found = Comparison.of(*sides, (ALIKE, ALIKE))
        wrong += any(pair.said in SETTLED for pair in found.pairs)
    assert wrong <= 13 and "for all policies together" in sentences(found)[-1]


def test_either_will_do_only_where_both_are_equal_within_a_few_percent() -> None:
    found = Comparison.of(rows({"ucb": 1.0}), rows({"ucb": 1.0}, noise=0.01), (ALIKE, ALIKE))
    overall, _, first, *_ = sentences(found)
    assert overall.startswith("For `ucb` either will do. What to do: take either, A or B: ")
    assert first.startswith("`ucb`: equal within 5 %; ")


def test_one_headline_over_all_policies() -> None:
    first = rows({"ucb": 1.0, "exp3": 1.0, "hedge": 1.0})
    second = rows({"ucb": 1.3, "exp3": 1.4}) + rows({"hedge": 1.0}, noise=0.3)
    found = Comparison.of(first, second, ({**ALIKE, "draft_length": 12}, {**ALIKE, "draft_length": 4}))
    assert sentences(found)[0] == (
        "Draft length 12 is better for `ucb` and `exp3`; for `hedge` these prompts cannot tell which is better. "
        "What to do: keep draft length 12, if a repetition finds the same."
    )
    second = rows({"ucb": 1.3, "exp3": 0.7, "hedge": 1.0})
    found = Comparison.of(first, second, (ALIKE, ALIKE))
    assert sentences(found)[0] == (
        "A is better for `ucb`; B is better for `exp3`; for `hedge` either will do. "
        "What to do: keep A for `ucb`, take B for `exp3`, if a repetition finds the same."
    )


def test_prompts_without_a_speedup_are_told_beside_their_number() -> None:
    short: dict[str, Any] = {"tokens": 4, "rounds": 2, "speedup": None, "prompt": 99}
    first, second = (rows({"ucb": each}) + rows({"ucb": each}, prompts=1, **short) for each in (1.0, 0.8))
    found = Comparison.of(first, second, (ALIKE, ALIKE))
    assert sentences(found)[2].endswith("on 9 prompts that both ran, 8 with a speed-up (1 answer too short for one).")
    assert table(found).rows[0][2] == "8 of 9"


def test_a_faster_machine_is_told_from_a_faster_policy() -> None:
    found = Comparison.of(rows({"ucb": 1.0}), rows({"ucb": 0.5}, baseline=1.0), (ALIKE, {**ALIKE, "hardware": "GPU"}))
    _, _, machine, verdict, *_ = sentences(found)
    assert machine.startswith("The machine") and "2.00× as fast in B, so the verdicts compare" in machine
    assert verdict.startswith("`ucb`: equal within 5 %")
    assert table(found).rows[0][-2:] == ("2.00×", "2.00×"), "by the clock"
    assert table(found).rows[0][5] == "1.00× (1.00–1.00)" and "The verdict is on the speed-up" in by_clock(found)


def test_a_faster_policy_on_a_slower_machine_is_faster() -> None:
    (pair,) = Comparison.of(rows({"ucb": 1.0}), rows({"ucb": 1.2}, noise=0.1, baseline=4.0), (ALIKE, ALIKE)).pairs
    a, b = pair.speedups
    assert pair.said == "faster" and pair.decode.high and pair.decode.high < 1 and pair.relative and a and b
    assert pair.relative.value == pytest.approx(b.value / a.value)


def test_without_a_baseline_the_clock_decides_and_says_so() -> None:
    blind = rows({"ucb": 0.5}, baseline_seconds=None, speedup=None)
    found = Comparison.of(rows({"ucb": 1.0}), blind, (ALIKE, ALIKE))
    assert found.pairs[0].relative is None and found.pairs[0].said == "faster"
    assert "B is faster; by the clock decoding is 2.00×" in sentences(found)[2]
    assert "since some run has no speed-up" in by_clock(found)


def test_answers_of_other_lengths_are_compared_by_the_token() -> None:
    longer = [Row(**{**vars(row), "tokens": 2 * row.tokens, "seconds": 2 * row.seconds}) for row in rows({"ucb": 1.0})]
    (pair,) = Comparison.of(rows({"ucb": 1.0}), longer, (ALIKE, ALIKE)).pairs
    assert pair.decode.value == pytest.approx(1.0) and pair.rounds.value == pytest.approx(2.0)


def test_only_prompts_of_both_count_and_settled_policies_come_first() -> None:
    first = rows({"exp3": 1.0, "ucb": 1.0, "hedge": 1.0}, prompts=6)
    second = rows({"ucb": 2.0, "exp3": 1.0}, prompts=9)
    found = Comparison.of(first, second, (ALIKE, ALIKE))
    assert [(pair.specs[0], pair.said) for pair in found.pairs] == [("ucb", "slower"), ("exp3", "equal within 5 %")]
    assert {pair.decode.prompts for pair in found.pairs} == {6}


def test_without_a_common_policy_the_fastest_of_each_are_compared() -> None:
    found = Comparison.of(rows({"ucb": 1.0, "exp3": 3.0}), rows({"hedge": 0.5}), (ALIKE, ALIKE))
    assert sentences(found)[2].startswith("`hedge` of B against `ucb` of A: B has the higher speed-up")


def test_too_few_prompts_are_no_verdict() -> None:
    found = Comparison.of(rows({"ucb": 1.0}, prompts=2), rows({"ucb": 0.5}, prompts=2), (ALIKE, ALIKE))
    assert (
        "few prompts to call one faster, on 2 prompts that both ran. By the clock, decoding is" in sentences(found)[2]
    )
    assert found.pairs[0].said == "too few prompts to say" and not any("Intervals" in s for s in sentences(found))
    assert sentences(found)[0].startswith(
        "Too few common prompts (2) for `ucb`; at least 6 are needed. What to do: run at"
    )
    assert sentences(replace(found, noisy=(1, 2)))[0].endswith("6 common prompts in both on a quiet machine.")


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ([], "the second result has no finished run"),
        (rows({"ucb": 1.0}, streams=4, tokens_per_second=None), "the second result has no finished run"),
        ([Row(**{**vars(row), "prompt": row.prompt + 100}) for row in rows({"ucb": 1.0})], "no prompt in common"),
        (rows({"autoregressive": 1.0}), "no policy ran"),
    ],
)
def test_what_cannot_be_compared_is_refused(second: list[Row], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Comparison.of(rows({"ucb": 1.0}), second, (ALIKE, ALIKE))


@pytest.mark.parametrize(
    "changes", [{}, {"baseline": None, "status": "error", "error": "no", "rounds": [], "task": None}]
)
def test_a_row_read_off_the_history_is_that_of_the_run(tmp_path: Path, changes: dict[str, Any]) -> None:
    run = make_run(**{"batch_id": "b", "prompt_id": "s-1", "lossless": True, **changes})
    with Store(tmp_path / "runs.db") as store:
        store.add(run)
    (values,) = experiments.figures(tmp_path / "runs.db", "b")
    recorded, own = asdict(Row.recorded(values)), asdict(Row.of("s-1", run.origin.task or "", run)) | {"run": 1}
    assert recorded == {
        name: pytest.approx(value) if isinstance(value, float) else value for name, value in own.items()
    }


def test_a_busy_machine_is_named():
    found = Comparison([], [], None, None, (5, 12))
    assert "the timings of 5 of 12 runs may put" in "".join(_noisy(found))
    assert not _noisy(replace(found, noisy=(2, 12)))
