"""The throughput of batches under several policies: what ``bench --batch-size`` measures."""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from drafters.errors import ContextWindowError, TextMemoryError, UserError
from drafters.sampling import SamplingParams
from drafters.traffic import Expectation
from multidraft.bench.measure import Measurement
from multidraft.bench.runner import Entry, SuiteRun, rotated, seed_of
from multidraft.bench.suites import SuiteItem
from multidraft.bench.summary import grouped
from multidraft.bench.table import NOTHING, markdown
from multidraft.engine.batch import Batch, Text, text_of
from multidraft.engine.decoding import Decoding
from storage.records import FINISHED, PLAIN, Generation
from storage.run import Origin

if TYPE_CHECKING:
    from drafters.models.streams import Stream
    from drafters.pool import Pool

T = TypeVar("T")

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
        equal: texts that are those of autoregressive decoding alone; ``None`` of sampled ones, which are not compared.
    """

    policy: str
    size: int
    texts: int
    tokens: int
    rounds: int
    seconds: float
    equal: int | None

    @classmethod
    def of(cls, spec: str, size: int, texts: Sequence[Generation], seconds: float, equal: int | None) -> BatchFigures:
        """What was made of these texts in so many seconds."""
        tokens, rounds = sum(len(text.token_ids) for text in texts), sum(len(text.rounds) for text in texts)
        return cls(spec, size, len(texts), tokens, rounds, seconds, equal)

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

    Autoregressive decoding alone comes first. Prompts that context window or memory do not hold are left out.

    Raises:
        PolicyError, UserError: see :class:`~multidraft.engine.decoding.Decoding`; or no prompt fits.
    """
    fitting = [item for item in items if _fits(pool, item, params)]
    if not fitting:
        raise UserError("no prompt of the suite fits the pool's context window")
    specs = list(dict.fromkeys([PLAIN, *specs]))
    for spec in specs:
        _decodings(pool, fitting[:1], spec, params, seed, warm_up=True)[0].run()
    batches = {(size, spec): Batch(pool, size) for size in sizes for spec in specs}
    for (size, spec), batch in batches.items():
        for each in _warm_up(pool, fitting[:size], spec, params, seed):
            deque(timed(batch, each), maxlen=0)
    expected: list[list[int]] = []
    for turn, size in enumerate((ALONE, *sizes) * repeat):
        for spec in rotated(specs, turn):
            found, seconds = _decode(batches.get((size, spec)), pool, fitting, spec, params, seed)
            texts = [generation.token_ids for generation in found]
            expected = expected or texts
            equal = sum(one == other for one, other in zip(texts, expected, strict=True))
            yield BatchFigures.of(spec, size, found, seconds, equal if params.greedy else None)


def _fits(pool: Pool, item: SuiteItem, params: SamplingParams) -> bool:
    try:
        Decoding(pool, item.prompt, PLAIN, params)
    except (ContextWindowError, TextMemoryError):
        return False
    return True


def _decode(
    batch: Batch | None, pool: Pool, items: Sequence[SuiteItem], spec: str, params: SamplingParams, seed: int
) -> tuple[list[Generation], float]:
    """Decode all prompts, in a batch or one after the other, and the seconds that it took."""
    pool.previous.clear()
    decodings, seconds = _decodings(pool, items, spec, params, seed), 0.0
    if batch is None:
        begun = time.perf_counter()
        return [decoding.run() for decoding in decodings], time.perf_counter() - begun
    with closing(timed(batch, map(text_of, decodings))) as steps:
        for ended, passed in steps:
            seconds += passed
            for stream in ended:
                if stream.error:
                    raise stream.error
    return [decoding.generation for decoding in decodings], seconds


def _decodings(
    pool: Pool, items: Sequence[SuiteItem], spec: str, params: SamplingParams, seed: int, *, warm_up: bool = False
) -> list[Decoding]:
    """What is to be decoded; to warm up only beginnings of it, from which nobody learns."""
    if warm_up:
        params = replace(params, max_new_tokens=min(WARM_UP_TOKENS, params.max_new_tokens))
    return [Decoding(pool, item.prompt, spec, params, seed_of(seed, item), learn=not warm_up) for item in items]


def _warm_up(
    pool: Pool, items: Sequence[SuiteItem], spec: str, params: SamplingParams, seed: int
) -> list[list[Text[Generation]]]:
    """What a batch decodes before it is timed under a policy, one list after the other."""
    return [list(map(text_of, _decodings(pool, items, each, params, seed, warm_up=True))) for each in (ALL_READ, spec)]


def timed(batch: Batch, texts: Iterable[Text[T]]) -> Generator[tuple[list[Stream[T]], float]]:
    """Decode texts in a batch; yields the streams that have ended in each step, and the step's seconds. What is done
    between two steps is in no figure. Drafts are tried, whatever those of a warm-up or another policy were worth."""
    batch.costs.crowd.begin()
    with closing(batch.steps(texts)) as steps:
        while True:
            begun = time.perf_counter()
            if (ended := next(steps, None)) is None:
                return
            yield ended, time.perf_counter() - begun


class SuiteBatch(SuiteRun):
    """Every prompt under every policy, several prompts at once: one policy after the other, each on all prompts.

    What is measured is the throughput of each policy. Single runs, whose rounds were taken beside others, have no
    baseline, hence no speed-up.

    Args:
        size: texts decoded at once, at most.
        waiting: what :meth:`steps` yields while texts that are decoded elsewhere leave no room for one.
        observe: shown every run before it begins.

    Attributes:
        figures: of each policy all of whose texts came to their end; ``equal`` are those that are the target's own.
        traffic: what each policy begins with; by default what the pool has learnt when the first begins.
    """

    def __init__(
        self,
        pool: Pool,
        items: Sequence[SuiteItem],
        policies: Sequence[str],
        params: SamplingParams,
        size: int,
        *,
        seed: int,
        origin: Origin,
        waiting: object,
        observe: Callable[[Measurement], None],
    ):
        super().__init__(pool, items, policies, params, seed=seed, origin=origin)
        self.size, self.waiting, self.observe, self.measures_baseline = size, waiting, observe, False
        self.figures: list[BatchFigures] = []
        self.traffic: Expectation | None = None
        self._measured: list[Measurement] = []

    def cancel(self) -> None:
        super().cancel()
        for measurement in list(self._measured):
            measurement.cancel()

    def steps(
        self, measure: Callable[[Measurement], Iterable[object]], done: Callable[[Sequence[Entry]], None]
    ) -> Iterator[object]:
        """As of :class:`SuiteRun`; ``measure`` finds out what is to be known of runs that were decoded, and ``done`` is
        called with all entries of a policy then, when its figures are there."""
        fitting = [item for item in self.items if _fits(self.pool, item, self.params)][: self.size]
        pool = copy.copy(self.pool)
        # Or a policy would begin with what the one before taught on the prompts.
        pool.traffic = self.traffic or copy.copy(pool.traffic)
        for spec in self.specs:
            if any(known == spec for _, known in self.known):  # all of a policy's runs are handed over at once
                entries = [
                    self._known(place, spec) or self._entry(item, spec, 0, ()) for place, item in enumerate(self.items)
                ]
                self.done += len(entries)
                done([e for e in entries if e.run.id is not None or e.error])
                continue
            with Batch(pool, self.size) as batch:
                for texts in _warm_up(pool, fitting, spec, self.params, self.seed):
                    for _ in timed(batch, texts):
                        yield None if len(batch) else self.waiting
                yield from self._under(spec, batch, measure, done)
        self.now = None

    def _under(
        self,
        spec: str,
        batch: Batch,
        measure: Callable[[Measurement], Iterable[object]],
        done: Callable[[Sequence[Entry]], None],
    ) -> Iterator[object]:
        entries, seconds, self._measured = list[Entry](), 0.0, []
        for item in self.items:
            self.now = item, spec
            entries.append(self._entry(item, spec, 0, ()))
            if self.measurement:
                self.observe(self.measurement)
                self._measured.append(self.measurement)
        self.done += len(entries) - len(self._measured)
        texts = [Text(measurement.decode_beside_others, measurement.decoding.longest) for measurement in self._measured]
        complete = False
        try:
            with closing(timed(batch, texts)) as steps:
                for ended, passed in steps:
                    seconds += passed
                    self.done += len(ended)
                    yield None if len(batch) else self.waiting
            for measurement in self._measured:
                yield from measure(measurement)
            self._sum_up(spec, seconds)
            complete = True
        finally:
            for measurement in self._measured:  # also where they were cut short, or never begun
                if measurement.phase == "waiting":
                    measurement.drop()
                measurement.phase = "done"
            done(entries if complete else [e for e in entries if e.run.generation.rounds])

    def _sum_up(self, spec: str, seconds: float) -> None:
        runs = [measurement.run for measurement in self._measured]
        generations = [run.generation for run in runs]
        if generations and all(generation.status in FINISHED for generation in generations):
            equal = sum(bool(run.scores.lossless) for run in runs)
            known = equal if self.params.greedy else None
            self.figures.append(BatchFigures.of(spec, self.size, generations, seconds, known))


def summary_of_batches(runs: Sequence[BatchFigures]) -> list[dict[str, Any]]:
    """For the report: the figures of each policy and size, and how many times the throughput of autoregressive decoding
    they are, alone and in a batch of that size; ``None`` where that was not measured."""
    counted = ("texts", "tokens", "rounds", "seconds", *(["equal"] if runs and runs[0].equal is not None else []))
    all_runs = [
        replace(each[0], **{name: sum(getattr(run, name) for run in each) for name in counted})
        for each in grouped(runs, "policy", "size").values()
    ]
    plain = {run.size: run.tokens_per_second for run in all_runs if run.policy == PLAIN}

    def over(run: BatchFigures, size: int) -> float | None:
        return run.tokens_per_second / plain[size] if size in plain else None

    return [
        {
            **asdict(run),
            "tokens_per_second": run.tokens_per_second,
            "over_batch": over(run, run.size),
            "over_alone": over(run, ALONE),
        }
        for run in all_runs
    ]


def _rate(row: dict[str, Any] | None) -> str:
    if row is None:
        return NOTHING
    over = "" if row["over_batch"] is None else f" ({row['over_batch']:.2f}x)"
    return f"{row['tokens_per_second']:.0f}{over}"


def render_batches(summary: Sequence[dict[str, Any]]) -> str:
    """A Markdown table: tokens per second by policy and size, in brackets how many times those of autoregressive
    decoding in a batch of that size."""
    sizes = list(dict.fromkeys(row["size"] for row in summary))
    cells = {(row["policy"], row["size"]): row for row in summary}
    rows = []
    for policy in dict.fromkeys(row["policy"] for row in summary):
        own = [cells.get((policy, size)) for size in sizes]  # of an interrupted measurement some are missing
        known = [row for row in own if row and row["equal"] is not None]
        equal = f"{sum(row['equal'] for row in known)}/{sum(row['texts'] for row in known)}" if known else NOTHING
        rates = [_rate(row) for row in own]
        rows.append([policy, *rates, equal])
    heads = ["alone" if size == ALONE else f"batch of {size}" for size in sizes]
    return markdown(["policy, tokens/s", *heads, "equal outputs"], rows)
