"""A run as plain values and as rows: nothing is lost, and what neither JSON nor SQLite holds is replaced."""

from __future__ import annotations

import json
import math
import tempfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drafters.base import Acceptances
from drafters.sampling import SamplingParams
from storage import queries
from storage.figures import FEWEST_TOKENS
from storage.records import PHASES, Generation, Round
from storage.rows import round_rows, run_row
from storage.run import Baseline, Conditions, Origin, Run, Scores, utc_text
from storage.store import Store
from tests.runs import columns_of, make_generation, make_round, make_run

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SECONDS = st.floats(0, 1e6)
SHARES = st.floats(0, 1)
NUMBERS = st.integers(0, 2**40)
TOKENS = st.lists(st.integers(0, 2**31), max_size=4).map(tuple)


def maybe(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | values


@st.composite
def rounds(draw: st.DrawFn) -> list[Round]:
    found = []
    for index in range(draw(st.integers(0, 3))):
        pieces = tuple(draw(st.lists(TEXTS, max_size=3)))
        values = {f"{phase}_seconds": draw(SECONDS) for phase in PHASES}
        values |= {name: draw(TOKENS) for name in ("drafted", "tokens")}
        values |= {name: draw(NUMBERS) for name in ("accepted", "draft_length", "nodes", "depth", "evaluated")}
        values |= {name: draw(maybe(SHARES)) for name in ("reward", "block_divergence")}
        values |= {"arm": draw(maybe(NUMBERS)), "drafter": draw(maybe(TEXTS)), "own": draw(maybe(NUMBERS))}
        values |= {"choices": draw(TOKENS), "siblings": tuple(draw(st.lists(TOKENS, max_size=2)))}
        values |= {"texts": draw(st.dictionaries(NUMBERS, TEXTS, max_size=3))}
        values |= {"together": draw(st.booleans()), "pieces": pieces, "text": "".join(pieces), "index": index}
        found.append(Round(**values, probabilities=draw(maybe(st.lists(SHARES, max_size=3).map(tuple)))))
    return found


@st.composite
def tables(draw: st.DrawFn) -> Acceptances:
    shape = draw(st.integers(1, 3)), draw(st.integers(0, 4))
    numbers = st.lists(st.integers(0, 300), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    return Acceptances(*(np.array(draw(numbers), dtype=np.int64).reshape(shape) for _ in range(3)))


@st.composite
def runs(draw: st.DrawFn) -> Run:
    played = draw(rounds())
    generation = Generation(
        prompt=draw(TEXTS),
        policy=draw(TEXTS),
        drafters=tuple(draw(st.lists(TEXTS, max_size=3))),
        prompt_tokens=draw(NUMBERS),
        token_ids=[token for r in played for token in r.tokens],
        text=draw(TEXTS),
        rounds=played,
        status=draw(st.sampled_from(["completed", "stopped", "context_limit", "cancelled", "error"])),
        prefill_seconds=draw(SECONDS),
        error=draw(maybe(TEXTS)),
        turns=tuple(draw(st.lists(st.tuples(TEXTS, TEXTS), max_size=2))),
    )
    baseline = st.builds(
        Baseline, st.sampled_from(["answer", "prefix"]), NUMBERS, st.floats(1e-9, 1e3), prefill_seconds=SECONDS
    )
    scores = st.builds(
        Scores,
        lossless=maybe(st.booleans()),
        near_tie_gap=maybe(SECONDS),
        regret_rounds=maybe(st.integers(-100, 100)),
        expected_regret=maybe(SECONDS),
        best_drafter=maybe(TEXTS),
        best_arm_ratio=maybe(SHARES),
        drafter_rounds=maybe(st.dictionaries(TEXTS, NUMBERS, max_size=3)),
        acceptance=maybe(tables()),
    )
    return Run(
        generation,
        SamplingParams(
            draw(st.integers(1, 1000)), draw(SECONDS), draw(st.floats(0.01, 1)), draw(st.integers(0, 99)), 5
        ),
        draw(st.integers(0, 2**63 - 1)),
        Conditions(*(draw(TEXTS) for _ in range(5)), draw(st.dictionaries(TEXTS, TEXTS, max_size=2))),
        Origin(draw(st.sampled_from(["play", "bench", "api"])), *(draw(maybe(TEXTS)) for _ in range(3))),
        draw(maybe(baseline)),
        draw(scores),
        draw(st.datetimes(datetime(2020, 1, 1), datetime(2099, 1, 1))).replace(tzinfo=UTC),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(runs())
def test_json_gives_the_run_back(run: Run) -> None:
    assert Run.from_json(json.loads(json.dumps(run.to_json(), allow_nan=False))) == run


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(runs(), min_size=1, max_size=4))
def test_the_history_gives_the_runs_back(written: list[Run]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        with Store(path) as store:
            for run in written:
                store.add(run)
        for id, run in enumerate(written, start=1):
            run.id = id
            assert queries.run(path, id) == run


def test_a_run_differs_from_one_with_another_table() -> None:
    one, other = (make_run(acceptance=Acceptances(*np.full((3, 2, 4), n))) for n in (1, 2))
    assert one.scores == one.scores and one.scores != other.scores and one.scores != Scores()


def test_columns_are_called_as_the_keys_of_the_json() -> None:
    values = make_run().to_json()
    assert set(run_row(values)) | {"id"} == set(columns_of("runs"))
    assert set(round_rows(values)[0]) | {"run_id"} == set(columns_of("rounds"))
    assert set(values) - set(columns_of("runs")) == {"rounds", "token_ids", "drafter_shares"}


def test_figures_of_a_run() -> None:
    run = make_run(max_new_tokens=6).to_json()
    assert run["tokens_per_second"] == pytest.approx(300)
    assert (run["decode_seconds"], run["verify_seconds"]) == (pytest.approx(0.02), pytest.approx(0.012))
    assert (run["mean_accepted_tokens"], run["acceptance_rate"]) == (3, pytest.approx(2 / 3))
    assert (run["round_count"], run["output_tokens"], run["drafted_tokens"], run["accepted_tokens"]) == (2, 6, 6, 4)
    assert (run["max_new_tokens"], run["draft_length"]) == (6, 3)


def test_both_speedups_of_an_answer_long_enough() -> None:
    generation = make_generation(rounds=[make_round(i) for i in range(3)], prefill_seconds=0.06)
    run = make_run(generation, baseline=Baseline("answer", 9, 0.01, 0.03))
    assert run.speedup == pytest.approx(9 * 0.01 / 0.03)
    assert run.request_speedup == pytest.approx((0.03 + 9 * 0.01) / (0.06 + 0.03))
    short = make_run(baseline=Baseline("answer", 9, 0.01, 0.03))
    assert len(short.generation.token_ids) < FEWEST_TOKENS and short.speedup is None is short.request_speedup
    alone = make_run(generation, baseline=None)
    assert alone.speedup is None is alone.request_speedup


def test_a_baseline_says_what_it_was() -> None:
    slow = [make_round(i, verify_seconds=s, tokens=(9,)) for i, s in enumerate((0.006, 0.006, 0.996))]
    generation = make_generation(rounds=slow, token_ids=[9] * 3)
    prefix, answer = Baseline.of(generation, "prefix"), Baseline.of(generation, "answer")
    assert (prefix.kind, prefix.tokens, prefix.prefill_seconds) == ("prefix", 3, 0.003)
    assert prefix.seconds_per_token == pytest.approx(0.010), "the median"
    assert answer.seconds_per_token == pytest.approx(1.02 / 3), "the mean"
    assert make_run(baseline=answer).to_json()["baseline_kind"] == "answer"


def test_rounds_of_the_best_drafter() -> None:
    none = make_round(2, arm=None, drafter=None, drafted=(), accepted=0)
    rounds = [make_round(0), make_round(1, arm=0, drafter="code"), none]
    assert run_row(make_run(rounds=rounds, best_drafter="math").to_json())["best_arm_rounds"] == "10-"
    assert run_row(make_run(rounds=rounds).to_json())["best_arm_rounds"] is None


def test_prompts_in_other_conversations_are_others() -> None:
    hashes = [
        run_row(make_run(prompt=prompt, turns=turns).to_json())["prompt_hash"]
        for prompt, turns in (("a", ()), ("a", ()), ("b", ()), ("a", (("x", "y"),)))
    ]
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3


def test_autoregressive_decoding_has_no_acceptance_rate() -> None:
    plain = make_round(0, arm=None, drafter=None, drafted=(), accepted=0)
    assert make_run(rounds=[plain]).to_json()["acceptance_rate"] is None


def test_a_generation_that_failed_before_its_first_round() -> None:
    values = make_run(rounds=[], status="error", error="out of memory").to_json()
    assert (values["rounds"], values["round_count"], values["error"]) == ([], 0, "out of memory")


def test_later_changes_of_the_run_do_not_reach_its_json() -> None:
    run = make_run()
    values = run.to_json()
    run.generation.rounds.clear()
    run.generation.token_ids.clear()
    assert len(values["rounds"]) == 2 and len(values["token_ids"]) == 6


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
def test_text(text: str, stored: str) -> None:
    values = make_run(prompt=text, task=text, turns=((text, "b"),)).to_json()
    assert (values["prompt"], values["task"], values["turns"]) == (stored, stored, [[stored, "b"]])
    json.dumps(values, ensure_ascii=False).encode()


def test_numbers_of_numpy_and_torch_and_numbers_that_are_none() -> None:
    odd = make_round(
        arm=np.int64(1),
        tokens=(np.int64(5), torch.tensor(6)),
        reward=np.float32(0.5),
        block_divergence=math.nan,
        probabilities=(np.float64(0.5), math.inf),
    )
    row = make_run(rounds=[odd]).to_json()["rounds"][0]
    assert (type(row["arm"]), type(row["reward"]), row["block_divergence"]) == (int, float, None)
    assert (row["tokens"], row["probabilities"]) == ([5, 6], [0.5, None])


def test_times_sort_as_text() -> None:
    whole = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
    assert utc_text(whole) == "2026-03-01T12:00:00.000000+00:00"
    assert utc_text(whole) < utc_text(whole + timedelta(microseconds=1))
    assert utc_text(whole.astimezone(timezone(timedelta(hours=9)))) == utc_text(whole.replace(tzinfo=None))


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(ValueError, match="play, race, batch, bench, api"):
        make_run(source="elsewhere")
