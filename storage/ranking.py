"""Policies ranked by their runs, on the prompts that all of them ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from storage.aggregates import RATIOS
from storage.connection import read_frame
from storage.figures import (
    FEWEST_PROMPTS,
    FEWEST_TOKENS,
    TOO_NOISY,
    at_different_times,
    at_one_speed,
    ranks,
    ratio_columns,
    ratio_of_totals,
)
from storage.filters import ALL, COMPARED, FINISHED, Filter
from storage.records import PLAIN


def policy_summary(path: str | Path, filter: Filter = ALL) -> pd.DataFrame:
    """One row per policy over its finished runs, by rank and request speed-up; those whose speed-up has no interval
    follow, likewise, and by name those without a speed-up or with one that is too noisy to tell.

    Columns: policy, runs, short_runs (those too short for a speed-up); for each figure of ``RATIOS`` its value, its 95
    % interval (``…_low``, ``…_high``) and over how many runs (``…_runs``) and distinct prompts (``…_prompts``) it is;
    NaN where unknown. ``speedup_uncertainty`` is by what share the timings alone may put a speed-up without an interval
    off (``storage.figures.Ratio.uncertainty``). ``compared`` says whether a policy's figures are over the same prompts
    as those of the other compared ones: with ``filter.shared`` the prompts that all of them ran. Then these come first,
    and the others follow with figures over their own prompts; ``ran`` is how many of the others' it ran. Without it all
    are taken for compared. ``common`` is the number of those prompts, 0 where there are none; ``apart`` whether their
    runs had different baselines (``storage.figures.at_different_times``). ``rank`` is that of those compared, by
    seconds of whole requests over the baseline's (``storage.figures.ranks``), and no better than that of a faster one;
    NaN below ``FEWEST_PROMPTS``.
    """
    where, values = filter.where(FINISHED)
    sums = ", ".join(
        f"total(CASE WHEN {counts} THEN {above} END) AS {name}_above, "
        f"total(CASE WHEN {counts} THEN {below} END) AS {name}_below, total({counts}) AS {name}_runs"
        for name, (above, below, counts) in RATIOS.items()
    )
    sql = f"""
        SELECT policy, prompt_hash, count(*) AS runs, total(output_tokens < {FEWEST_TOKENS}) AS short_runs, {sums}
        FROM runs {where} GROUP BY policy, prompt_hash ORDER BY policy, prompt_hash
    """
    by_prompt = read_frame(path, sql, values)
    of_policy = {str(policy): prompts for policy, prompts in by_prompt.groupby("policy")}
    ran = {policy: set(prompts["prompt_hash"]) for policy, prompts in of_policy.items()}
    compared, common = shared_prompts(ran, strict=bool(filter.policy)) if filter.shared else (list(ran), None)
    taken = {
        policy: prompts if common is None else prompts[prompts["prompt_hash"].isin(common)]
        for policy, prompts in of_policy.items()
        if policy in compared
    }
    speeds = ("speedup", "request_speedup")
    means = {name: {policy: _means(prompts, name) for policy, prompts in taken.items()} for name in speeds}
    timed = {name: at_one_speed(found, PLAIN) for name, found in means.items()}
    apart = at_different_times(means["speedup"], PLAIN)
    rows = []
    for policy, prompts in of_policy.items():
        row = {"policy": policy, "runs": int(prompts["runs"].sum()), "short_runs": int(prompts["short_runs"].sum())}
        row |= {"compared": policy in taken, "apart": apart}
        row |= {"common": len(common or ()), "ran": len(ran[policy] & (common or set()))}
        prompts = taken.get(policy, prompts)
        for name in RATIOS:
            pairs = _means(prompts, name)
            if policy in taken and name in timed:
                baselines, seconds = timed[name]
                pairs = {prompt: (baselines[prompt], own) for prompt, own in seconds[policy].items()}
            above, below = ([pair[part] for pair in pairs.values()] for part in (0, 1))
            row |= ratio_columns(name, ratio_of_totals(above, below))
            row[f"{name}_runs"] = int(prompts[f"{name}_runs"].sum())
        rows.append(row)
    few = [str(row["policy"]) for row in rows if row["speedup"] is not None and row["speedup_low"] is None]
    off = _uncertainties(path, filter, few)
    rows = [row | {"speedup_uncertainty": off.get(str(row["policy"]))} for row in rows]
    figures = [f"{name}{part}" for name in RATIOS for part in ("", "_low", "_high", "_prompts", "_runs")]
    figures.append("speedup_uncertainty")
    names = ["policy", "runs", "short_runs", "compared", "apart", "common", "ran"]
    frame = pd.DataFrame(rows, columns=[*names, *figures])
    frame = frame.astype({column: float for column in figures if not column.endswith("_runs")})
    told = frame["request_speedup"].mask(frame["speedup_uncertainty"] > TOO_NOISY)
    frame = frame.assign(few=frame["request_speedup_low"].isna(), told=told)
    order = ["compared", "few", "told", "policy"]
    ordered = frame.sort_values(order, ascending=[False, True, False, True], ignore_index=True)
    seconds = timed["request_speedup"][1]
    found = ranks(
        {line.policy: seconds[line.policy] for line in ordered.itertuples() if line.compared and not line.few}
    )
    # However noisy a policy is, it does not rank before those that are faster by their figures.
    ordered["rank"] = ordered["policy"].map(found).astype(float).cummax().rank(method="min")
    return ordered.sort_values("rank", kind="stable", ignore_index=True).drop(columns=["few", "told"])


def _uncertainties(path: str | Path, filter: Filter, policies: Sequence[str]) -> dict[str, float]:
    """By what share the timings of each policy's runs may put its speed-up off, where known: the largest of the runs,
    as of ``storage.figures.Ratio``."""
    if not policies:
        return {}
    where, values = filter.where(FINISHED, COMPARED)
    sql = f"""
        SELECT policy, max((SELECT speedup_uncertainty FROM runs AS own WHERE own.id = runs.id)) AS off
        FROM runs {where} AND policy IN ({", ".join("?" * len(policies))}) GROUP BY policy
    """
    found = read_frame(path, sql, [*values, *policies], numbers=["off"]).dropna()
    return dict(zip(found["policy"], found["off"], strict=True))


def _means(prompts: pd.DataFrame, name: str) -> dict[Any, tuple[float, float]]:
    """Numerator and denominator of a figure of ``RATIOS``, each the mean over the runs of a prompt, by its hash."""
    counted = prompts[prompts[f"{name}_runs"] > 0]
    above, below = (counted[f"{name}_{part}"] / counted[f"{name}_runs"] for part in ("above", "below"))
    return dict(zip(counted["prompt_hash"], zip(above, below, strict=True), strict=True))


def shared_prompts(ran: Mapping[str, set[Any]], *, strict: bool = False) -> tuple[list[str], set[Any] | None]:
    """The policies to compare and the prompts that all of them ran.

    Of the policies in order of their number of prompts the first so many are taken that policies times common prompts
    are the most: a policy that ran on a few prompts, or on others, does not make the comparison of the rest worthless.

    Args:
        ran: the prompts of each policy.
        strict: all policies were asked for, so all are compared.

    Returns:
        all policies and ``None`` where no two of them have ``FEWEST_PROMPTS`` prompts in common.
    """
    order = sorted(ran, key=lambda policy: (-len(ran[policy]), policy))
    best, common = 0, ran[order[0]] if order else set()
    size = 0
    for count, policy in enumerate(order, start=1):
        common = common & ran[policy]
        worth = count * len(common)
        if count > 1 and len(common) >= FEWEST_PROMPTS and (worth >= size or strict):
            best, size = count, worth
    if not best or (strict and best < len(order)):
        return order, None
    return order[:best], set.intersection(*(ran[policy] for policy in order[:best]))
