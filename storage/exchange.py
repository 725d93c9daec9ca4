"""Runs in the forms of other tools' files, which :mod:`storage.imports` reads: for each policy on a pool

- ``spec-bench``: answers of Spec-Bench, a run a line, as its ``evaluation/speed.py`` reads them;
- ``specdec_bench``: ``acceptance_rate.json`` and ``timing.json`` of NVIDIA's specdec_bench (SPEED-Bench);
- ``aiperf``: ``profile_export.jsonl``, AIPerf's record of each request.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from drafters.errors import UserError
from storage import queries
from storage.connection import read_rows
from storage.filters import FINISHED, TIMED, Filter
from storage.rows import prompt_of
from storage.run import IMPORTED, Run
from storage.speculation import speculation_of

Write = Callable[[Sequence[Run]], str]
"""The content of a file, of the runs of one policy on one pool."""


def export_form(form: str, path: str | Path, filter: Filter, file: str | Path) -> int:
    """Write the finished runs with rounds that the filter lets through to a ZIP file, by pool, policy and temperature;
    returns how many. Forms of which each line has a time take no run that was decoded beside others.

    Raises:
        OSError: the file cannot be written.
        StorageError: the database cannot be read.
        UserError: there is no such run; nothing is written.
    """
    timed = () if form == "specdec_bench" else (TIMED,)
    where, values = filter.where(FINISHED, "round_count > 0", f"source NOT IN {IMPORTED}", *timed)
    order = "ORDER BY pool, policy, temperature, created_at, id"
    found = read_rows(path, f"SELECT pool, policy, temperature, id FROM runs {where} {order}", values)
    if not found:
        alone = ", decoded one at a time," if timed else ""
        raise UserError(
            f"There is nothing to export: this form takes finished runs with rounds{alone} and none matches."
        )
    written = 0
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for (pool, policy, temperature), group in groupby(found, key=itemgetter(0, 1, 2)):
            runs = [run for *_, id in group if (run := queries.run(path, id))]
            for name, write in FORMS[form].items():
                sampled = f"-temperature-{temperature}" if temperature else ""
                folder = re.sub(r"[^\w.=+-]+", "-", f"{pool}-{policy}{sampled}")
                archive.writestr(name.format(folder), write(runs))
            written += len(runs)
    return written


def _spec_bench(runs: Sequence[Run]) -> str:
    """Answers; ``question_id`` is the same for the same prompt, ``wall_time`` that of the whole request."""
    lines = []
    for run in runs:
        g = run.generation
        choice = {
            "index": 0,
            "turns": [g.text],
            "decoding_steps": [len(g.rounds)],
            "new_tokens": [len(g.token_ids)],
            "wall_time": [g.request_seconds],
            "accept_lengths": [r.emitted for r in g.rounds],
        }
        about = {"question_id": prompt_of(g), "category": run.origin.task or "", "answer_id": str(run.id)}
        model = {"model_id": f"{run.conditions.pool}-{g.policy}", "choices": [choice]}
        lines.append({**about, **model, "tstamp": run.created_at.timestamp() + g.request_seconds})
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _acceptance_rate(runs: Sequence[Run]) -> str:
    """Acceptance lengths as specdec_bench counts them: without a first step of one token, which is the prefill's there,
    and without the last step, which the end may have cut."""
    lengths = []
    for run in runs:
        emitted = [r.emitted for r in run.generation.rounds]
        lengths.append(emitted[int(emitted[0] == 1) : -1] or [1])
    means = [fmean(each) for each in lengths]
    counts = Counter(length for each in lengths for length in each)
    joint = {n: sum(c for m, c in counts.items() if m >= n) / counts.total() for n in sorted(counts)}
    before = [1.0, *joint.values()]
    found: dict[str, Any] = {
        "Request_AL": {str(run.id): {"0": mean} for run, mean in zip(runs, means, strict=True)},
        "Average_AL": fmean(means),
        "Acceptance_Length_Histogram": {n: counts[n] for n in sorted(counts)},
        "Conditional_Acceptance_Rate": {n: share / last for (n, share), last in zip(joint.items(), before)},
        "Joint_Acceptance_Rate": joint,
    }
    by_task = defaultdict[str, list[float]](list)
    for run, mean in zip(runs, means, strict=True):
        if run.origin.task:
            by_task[run.origin.task].append(mean)
    if by_task:
        found["Category_AL"] = {task: fmean(by_task[task]) for task in sorted(by_task)}
    return json.dumps([found], indent=4)


def _timing(runs: Sequence[Run]) -> str:
    """Times as specdec_bench tells them, of requests one after the other: runs beside others are left out."""
    alone = [run.generation for run in runs if run.generation.streams == 1]
    if not alone:
        return "[]"
    tokens, seconds = [len(g.token_ids) for g in alone], [g.request_seconds for g in alone]
    after = [(len(g.token_ids) - g.rounds[0].emitted, g.seconds - g.rounds[0].seconds) for g in alone]
    rates = [count / spent for count, spent in after if count and spent]
    figures: dict[str, Sequence[float]] = {
        "E2E Request Time": seconds,
        "TTFT Time": [g.prefill_seconds + g.rounds[0].seconds for g in alone],
        "Request Generation Step Time": [r.seconds for g in alone for r in g.rounds],
        "Request Generation Tokens Per Second": rates,
        "Number of Output Tokens": tokens,
    }
    rate = sum(tokens) / sum(seconds)
    stats = {name: _statistics(values) for name, values in figures.items() if values}
    return json.dumps([{"Output TPS": rate, "Output TPS/gpu": rate, **stats}], indent=4)


def _statistics(values: Sequence[float]) -> dict[str, Any]:
    found = {"min": min(values), "max": max(values), "mean": float(np.mean(values)), "std": float(np.std(values))}
    quantiles = {str(q): f"{np.quantile(values, q):.4f}" for q in (0.25, 0.5, 0.75)}
    return {**{name: f"{value:.4f}" for name, value in found.items()}, "quantiles": quantiles}


def _profile_export(runs: Sequence[Run]) -> str:
    """AIPerf's records: latencies in milliseconds, and how drafts did, in the words of vLLM."""
    lines = []
    for number, run in enumerate(runs):
        g = run.generation
        drafts = speculation_of(run)
        begins = int(run.created_at.timestamp() * 1e9)
        values = {
            "request_latency": (1000 * g.request_seconds, "ms"),
            "time_to_first_token": (1000 * (g.prefill_seconds + g.rounds[0].seconds), "ms"),
            "input_sequence_length": (g.prompt_tokens, "tokens"),
            "output_sequence_length": (len(g.token_ids), "tokens"),
            # Also where nothing was drafted, which tells that each round wrote one token.
            "spec_decode_steps": (drafts["num_spec_steps"], "count"),
            "spec_decode_draft_tokens": (drafts["num_draft_tokens"], "tokens"),
            "spec_decode_accepted_draft_tokens": (drafts["num_accepted_draft_tokens"], "tokens"),
        }
        line: dict[str, Any] = {
            "metadata": {
                "session_num": number,
                "conversation_id": str(run.id),
                "turn_index": 0,
                "request_start_ns": begins,
                "request_end_ns": begins + int(g.request_seconds * 1e9),
                "worker_id": "multidraft",
                "record_processor_id": "multidraft",
                "benchmark_phase": "profiling",
            },
        }
        if drafts["num_spec_steps"]:
            values |= {
                "spec_decode_acceptance_length": (drafts["mean_acceptance_length"], "ratio"),
                "spec_decode_draft_acceptance_rate": (100 * drafts["draft_acceptance_rate"], "%"),
            }
            histogram = {n: steps for n, steps in enumerate(drafts["acceptance_histogram"]) if steps}
            line["spec_decode_acceptance"] = {**drafts, "engine": "multidraft", "acceptance_histogram": histogram}
        line["metrics"] = {name: {"value": value, "unit": unit} for name, (value, unit) in values.items()}
        lines.append(line)
    return "".join(json.dumps(line) + "\n" for line in lines)


FORMS: dict[str, dict[str, Write]] = {
    "spec-bench": {"{}.jsonl": _spec_bench},
    "specdec_bench": {"{}/acceptance_rate.json": _acceptance_rate, "{}/timing.json": _timing},
    "aiperf": {"{}/profile_export.jsonl": _profile_export},
}
"""The files of each form, by their names, in which ``{}`` is pool, policy and, of sampled runs, temperature."""
