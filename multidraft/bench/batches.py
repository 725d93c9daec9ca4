"""The throughput of batches under several policies: what ``bench --batch-size`` measures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from drafters.errors import ContextWindowError, UserError
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.bench.measure import BASELINE
from multidraft.bench.runner import seed_of
from multidraft.bench.suites import SuiteItem
from multidraft.bench.table import markdown
from multidraft.engine.batch import Batch
from multidraft.engine.decoding import Decoding
from storage.records import Generation

ALONE = 0
"""The size that stands for decoding one prompt after the other, outside of any batch."""

ALL_READ, WARM_UP_TOKENS = "normal-hedge:every=1", 16
"""A policy under which all drafters read: memory is slow when it is first written."""


@dataclass(frozen=True)
class BatchFigures:
    """What a batch of a whole suite has made.

    Attributes:
        size: texts decoded at once; ``ALONE`` is none.
        texts, tokens, rounds: in all.
        seconds: of all of it, prompts and waiting for the last text included.
        equal: texts that are those of autoregressive decoding alone.
    """

    policy: str
    size: int
    texts: int
    tokens: int
    rounds: int
    seconds: float
    equal: int

    @property
    def tokens_per_second(self) -> float:
        """Throughput: new tokens of all texts in a second."""
        return self.tokens / self.seconds


def measure_batches(
    pool: Pool,
    items: Sequence[SuiteItem],
    specs: Sequence[str],
    params: SamplingParams,
    sizes: Sequence[int],
    *,
    seed: int = 0,
    repeat: int = 1,
) -> Iterator[BatchFigures]:
    """Decode a suite once for every policy and size, and ``repeat`` times in all; policies rotate from time to time.

    Autoregressive decoding alone comes first. Prompts that the context window does not hold are left out.

    Raises:
        PolicyError, UserError: see :class:`~multidraft.engine.decoding.Decoding`; or no prompt fits.
    """
    fitting = [item for item in items if _fits(pool, item, params)]
    if not fitting:
        raise UserError("no prompt of the suite fits the pool's context window")
    specs = list(dict.fromkeys([BASELINE, *specs]))
    short = replace(params, max_new_tokens=min(WARM_UP_TOKENS, params.max_new_tokens))
    for spec in specs:
        _decode(None, pool, fitting[:1], spec, short, seed)
    # One each: a batch learns from what its texts do whether drafts pay.
    batches = {(size, spec): Batch(pool, size) for size in sizes for spec in specs}
    for (size, spec), batch in batches.items():
        for each in (ALL_READ, spec):
            _decode(batch, pool, fitting[:size], each, short, seed)
    expected: list[list[int]] = []
    turn = 0
    for _ in range(repeat):
        for size in (ALONE, *sizes):
            first, turn = turn % len(specs) if expected else 0, turn + 1
            for spec in specs[first:] + specs[:first]:
                begun = time.perf_counter()
                found = _decode(batches.get((size, spec)), pool, fitting, spec, params, seed)
                seconds = time.perf_counter() - begun
                texts = [generation.token_ids for generation in found]
                expected = expected or texts
                equal = sum(one == other for one, other in zip(texts, expected, strict=True))
                rounds = sum(len(generation.rounds) for generation in found)
                yield BatchFigures(spec, size, len(texts), sum(map(len, texts)), rounds, seconds, equal)


def _fits(pool: Pool, item: SuiteItem, params: SamplingParams) -> bool:
    try:
        Decoding(pool, item.prompt, BASELINE, params)
    except ContextWindowError:
        return False
    return True


def _decode(
    batch: Batch | None, pool: Pool, items: Sequence[SuiteItem], spec: str, params: SamplingParams, seed: int
) -> list[Generation]:
    """Decode all prompts, in a batch or one after the other."""
    pool.previous.clear()

    def decode(item: SuiteItem, pool: Pool) -> Generation:
        return Decoding(pool, item.prompt, spec, params, seed_of(seed, item)).run()

    return (
        batch.run(partial(decode, item) for item in items)
        if batch is not None
        else [decode(item, pool) for item in items]
    )


def totals(runs: Sequence[BatchFigures]) -> list[BatchFigures]:
    """The runs of one policy and size as one, in the order in which they first came."""
    found: dict[tuple[str, int], list[BatchFigures]] = {}
    for run in runs:
        found.setdefault((run.policy, run.size), []).append(run)
    counted = ("texts", "tokens", "rounds", "seconds", "equal")
    return [
        replace(each[0], **{name: sum(getattr(run, name) for run in each) for name in counted})
        for each in found.values()
    ]


def summary_of_batches(runs: Sequence[BatchFigures]) -> list[dict[str, Any]]:
    """For the report: the figures of each policy and size, and how many times the throughput of autoregressive decoding
    they are, alone and in a batch of that size."""
    all_runs = totals(runs)
    plain = {run.size: run.tokens_per_second for run in all_runs if run.policy == BASELINE}
    return [
        {
            **asdict(run),
            "tokens_per_second": run.tokens_per_second,
            "over_batch": run.tokens_per_second / plain[run.size],
            "over_alone": run.tokens_per_second / plain[ALONE],
        }
        for run in all_runs
    ]


def render_batches(summary: Sequence[dict[str, Any]]) -> str:
    """A Markdown table: tokens per second by policy and size, in brackets how many times those of autoregressive
    decoding in a batch of that size."""
    sizes = list(dict.fromkeys(row["size"] for row in summary))
    cells = {(row["policy"], row["size"]): row for row in summary}
    rows = []
    for policy in dict.fromkeys(row["policy"] for row in summary):
        own = [cells[policy, size] for size in sizes]
        rates = [f"{row['tokens_per_second']:.0f} ({row['over_batch']:.2f}x)" for row in own]
        equal = f"{sum(row['equal'] for row in own)}/{sum(row['texts'] for row in own)}"
        rows.append([policy, *rates, equal])
    heads = ["alone" if size == ALONE else f"batch of {size}" for size in sizes]
    return markdown(["policy, tokens/s", *heads, "equal outputs"], rows)
