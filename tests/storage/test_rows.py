"""From a generation to rows: figures, and the texts and numbers that SQLite cannot hold."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from multidraft.records import Round
from storage.rows import FEWEST_TOKENS, speedup, to_rows, utc_text


def test_figures_of_a_run(generation, context) -> None:
    run = to_rows(generation(), context()).run
    assert run["tokens_per_second"] == pytest.approx(300)
    assert run["decode_seconds"] == pytest.approx(0.02)
    assert run["verify_seconds"] == pytest.approx(0.012)
    assert run["mean_accepted_tokens"] == 3
    assert run["acceptance_rate"] == pytest.approx(2 / 3)
    assert (run["rounds"], run["output_tokens"], run["draft_length"]) == (2, 6, 3)
    assert json.loads(run["parameters"])["top_p"] == 1.0


def test_what_charts_over_rounds_need_is_kept_with_the_run(generation, context, round_of) -> None:
    none = round_of(2, arm=None, drafter=None, drafted=(), accepted=0, tokens=(9,), pieces=("é\n",), text="é\n")
    out = generation(rounds=[round_of(0), round_of(1, arm=0, drafter="code"), none])
    run = to_rows(out, context(best_arm="math")).run
    assert run["best_arm_rounds"] == "10-"
    assert json.loads(run["piece_lengths"]) == [1, 1, 1, 1, 1, 1, 2]
    assert to_rows(out, context()).run["best_arm_rounds"] is None


@pytest.mark.parametrize("baseline", [None, 0.0])
def test_no_speedup_without_a_baseline(generation, context, baseline) -> None:
    assert to_rows(generation(), context(baseline_tokens_per_second=baseline)).run["speedup"] is None


def test_a_generation_that_failed_before_its_first_round(generation, context) -> None:
    rows = to_rows(generation(rounds=[], status="error", error="out of memory"), context())
    assert rows.rounds == []
    assert (rows.run["status"], rows.run["error"], rows.run["rounds"]) == ("error", "out of memory", 0)


def test_speedup_of_an_answer_long_enough_to_tell(generation, context, round_of) -> None:
    longer, short = (
        to_rows(generation(rounds=[round_of(i) for i in range(3)]), context()).run,
        to_rows(generation(), context()).run,
    )
    assert (longer["output_tokens"], longer["speedup"]) == (9, pytest.approx(2))
    assert (short["output_tokens"], short["speedup"]) == (6, None)
    assert short["baseline_tokens_per_second"] == 150
    assert speedup(FEWEST_TOKENS, 300, 150) == 2 and speedup(FEWEST_TOKENS - 1, 300, 150) is None
    assert speedup(64, 300, None) is None and speedup(64, None, 150) is None


def test_later_changes_of_the_generation_do_not_reach_the_rows(generation, context) -> None:
    out = generation()
    rows = to_rows(out, context())
    out.rounds.clear()
    out.text = "changed"
    assert (len(rows.rounds), rows.run["output"]) == (2, "abcabc")


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("a\x00b", "a\x00b"),
        ("naïve 数学 😀", "naïve 数学 😀"),
        ("lone \ud83d surrogate", "lone \ufffd surrogate"),
        ("lone \ude00 surrogate", "lone \ufffd surrogate"),
        ("pair \ud83d\ude00", "pair 😀"),
        ("\ufeffmark", "\ufeffmark"),
    ],
)
def test_text(generation, context, text: str, stored: str) -> None:
    rows = to_rows(generation(prompt=text), context(task=text))
    assert (rows.run["prompt"], rows.run["task"]) == (stored, stored)
    rows.run["prompt"].encode()


def test_numbers_of_numpy_and_numbers_that_are_none(generation, context) -> None:
    template = generation().rounds[0]
    odd = Round(
        **{
            **vars(template),
            "arm": np.int64(1),
            "tokens": (np.int64(5),),
            "reward": np.float32(0.5),
            "block_divergence": math.nan,
            "probabilities": (np.float64(0.5), math.inf),
        }
    )
    row = to_rows(generation(rounds=[odd]), context()).rounds[0]
    assert (type(row["arm"]), type(row["reward"]), row["block_divergence"]) == (int, float, None)
    assert (row["token_ids"], row["probabilities"]) == ("[5]", "[0.5,null]")


def test_times_sort_as_text() -> None:
    whole = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
    assert utc_text(whole) == "2026-03-01T12:00:00.000000+00:00"
    assert utc_text(whole) < utc_text(whole + timedelta(microseconds=1))
    assert utc_text(whole.astimezone(timezone(timedelta(hours=9)))) == utc_text(whole.replace(tzinfo=None))


def test_an_unknown_source_is_refused(context) -> None:
    with pytest.raises(ValueError, match="play, race, batch, bench, api"):
        context(source="elsewhere")
