"""Ranks of policies over a history."""

from __future__ import annotations

from pathlib import Path

from multidraft.bench.summary import Row, speedups
from storage import ranking
from storage.filters import Filter
from storage.run import Baseline
from tests.runs import make_round, make_run


def test_policies_that_cannot_be_told_apart_share_a_rank_whatever_the_day(store, path: Path) -> None:
    """``b`` is level with ``a``, ``c`` slower; ``d`` as fast as ``a`` on a machine that was half as fast."""
    for number in range(8):
        for policy, factor in (
            ("a", 1.0),
            ("b", 1.0 + (-1) ** number / 20),
            ("c", 1.5),
            ("d", 2.0 + (-1) ** number / 2),
        ):
            own = [
                make_round(
                    index, verify_seconds=0.01 * factor, draft_seconds=0.0, policy_seconds=0.0, evaluate_seconds=0.0
                )
                for index in range(3)
            ]
            speed = 75.0 if policy == "d" else 150.0
            store.add(make_run(prompt=str(number), policy=policy, rounds=own, prefill_seconds=0.0, baseline=speed))
    assert store.flush()
    found = ranking.policy_summary(path, Filter(shared=True)).set_index("policy")["rank"]
    assert found["c"] == 4 and found[["a", "b", "d"]].tolist() == [1, 1, 1]


def test_a_policy_that_varies_from_prompt_to_prompt_ranks_before_no_faster_one(store, path: Path) -> None:
    """``c`` is slower than ``a``; ``d`` is slower still, but far too noisy to tell."""
    for number in range(8):
        for policy, factor in (("a", 1.0), ("c", 1.5), ("d", 4.0 if number % 4 == 0 else 1.0)):
            parts = {"draft_seconds": 0.0, "policy_seconds": 0.0, "evaluate_seconds": 0.0}
            own = [make_round(index, verify_seconds=0.01 * factor, **parts) for index in range(3)]
            store.add(make_run(prompt=str(number), policy=policy, rounds=own, prefill_seconds=0.0, baseline=150.0))
    assert store.flush()
    found = ranking.policy_summary(path, Filter(shared=True))
    assert list(found["policy"]) == ["a", "c", "d"] and found["rank"].tolist() == [1, 2, 2]


def test_speedups_that_are_too_noisy_put_no_policy_first(store, path: Path) -> None:
    rounds = [make_round(index) for index in range(3)]  # 300 tokens per second
    for policy, speed, off in (("a", 150.0, 0.02), ("b", 30.0, 0.5), ("c", 75.0, 0.02), ("d", 20.0, 0.4)):
        baseline = Baseline("prefix", 9, 1 / speed, 0.002, off)
        store.add(make_run(policy=policy, rounds=rounds, baseline=baseline))
    assert store.flush()
    frame = ranking.policy_summary(path)
    assert list(frame["policy"]) == ["c", "a", "b", "d"]
    assert list(frame["speedup_uncertainty"] > 0.25) == [False, False, True, True]


def test_the_noise_of_a_speedup_is_that_of_its_noisiest_run_as_in_verdicts(store, path: Path) -> None:
    rounds = [make_round(index) for index in range(3)]
    baselines = [Baseline("answer", 9, 0.01, 0.0, off) for off in (0.02, 0.1)]
    runs = [make_run(prompt=str(n), rounds=rounds, baseline=baseline) for n, baseline in enumerate(baselines)]
    store.add(*runs)
    assert store.flush()
    (found,) = ranking.policy_summary(path)["speedup_uncertainty"]
    rows = [Row.of("", "", run) for run in runs]
    assert found == speedups(rows)[0].uncertainty == runs[1].speedup_uncertainty


def test_shared_prompts_are_the_largest_comparison() -> None:
    ran = {"a": set(range(20)), "b": set(range(20)), "c": set(range(3, 20)), "d": {1, 2}, "e": {99}}
    assert ranking.shared_prompts(ran) == (["a", "b", "c"], set(range(3, 20)))
    assert ranking.shared_prompts(ran, strict=True) == (["a", "b", "c", "d", "e"], None)
    assert ranking.shared_prompts({}) == ([], None)
    assert ranking.shared_prompts({"a": {1, 2, 3}}) == (["a"], None)


def test_acceptance_counts_a_prompt_with_the_mean_of_its_runs_also_where_one_drafted_nothing(store, path: Path) -> None:
    """Of the first prompt 3 of 6 in one run and none of none in the other, of the second 9 of 9."""
    silent = [make_round(n, drafted=(), accepted=0, tokens=(9,), own=9, pieces=("c",)) for n in range(9)]
    for prompt, rounds in (
        ("one", [make_round(0, accepted=2), make_round(1, accepted=1, tokens=(5, 9), pieces=("a", "c"))]),
        ("one", silent),
        ("two", [make_round(n, accepted=3) for n in range(3)]),
    ):
        store.add(make_run(prompt=prompt, rounds=rounds))
    assert store.flush()
    assert ranking.policy_summary(path)["acceptance_rate"].tolist() == [(1.5 + 9) / (3 + 9)]
