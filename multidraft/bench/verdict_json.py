"""The verdict on a kind of traffic as plain values, for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from multidraft.bench.action import withheld
from multidraft.bench.verdict import sentences
from multidraft.bench.verdict_tables import PARTS
from multidraft.replay.advice import Advice
from multidraft.replay.options import Option
from storage.run import plain


def as_json(advice: Advice) -> dict[str, Any]:
    """All of it as plain values."""
    options = [
        {
            "policy": option.spec,
            "draft_length": option.length,
            "exact_rounds": not option.estimate,
            "mean_accepted_tokens": option.mean_accepted_tokens,
            "calls_saved": option.calls_saved,
            "speedup": asdict(option.times_as_fast(advice.plain, "decode")),
            "request_speedup": asdict(option.times_as_fast(advice.plain)),
            "first_is_faster": asdict(advice.best.times_as_fast(option)),
            "prompts_to_settle": None if option is advice.best else advice.best.times_as_fast(option).prompts_to_settle,
            "measured": _measured(advice, option),
        }
        for option in advice.options
    ]
    (gone, ratio), judged = advice.removed, advice.measured or advice
    told = judged is not advice or advice.trusted
    values: dict[str, Any] = plain(
        {
            "verdict": sentences(advice),
            "pays": judged.pays if told else "open",
            "fastest": judged.leader if told else None,
            "faster_than_plain": judged.sure.spec if told and judged.sure else None,
            "certain": told and judged.certain,
            "replay_errors": advice.errors,
            "replay_request_errors": advice.request_errors,
            "prompts_seen_before": judged.repeated,
            "answers_cut": judged.cut,
            "answers_that_loop": judged.looping,
            "withheld": withheld(advice) or None,
            "prompts": advice.prompts,
            "texts": advice.texts,
            "policies": options,
            "lengths": {str(length): asdict(found) for length, found in advice.lengths.items()},
            "drafters": [{**asdict(share), "verdict": advice.fate(share)} for share in advice.shares],
            "removed": {"drafters": gone, "without": ratio and asdict(ratio)},
        }
    )
    return values


def _measured(advice: Advice, option: Option) -> list[dict[str, Any]]:
    live = advice.measured
    known = live and live.option(option.spec)
    return [asdict(known.times_as_fast(live.plain, part)) for part in PARTS] if live and known else []
