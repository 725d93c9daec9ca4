"""Runs a suite under several policies, interleaved prompt by prompt so that drift of the machine hits all alike."""

from __future__ import annotations

import logging
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from drafters.errors import ContextWindowError, PromptError
from drafters.sampling import SamplingParams
from multidraft.bench.baseline import settle_baseline
from multidraft.bench.measure import Measurement, Request, conditions_of
from multidraft.bench.suites import SuiteItem
from multidraft.engine.arguments import policy_for, read_seed
from multidraft.engine.decoding import Decoding
from multidraft.policies.specs import canonical_spec, check_specs, is_plain
from storage.records import Generation
from storage.run import Origin, Run

if TYPE_CHECKING:
    from drafters.pool import Pool

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One prompt of a suite under one policy.

    Attributes:
        repeat: counted from 0.
        run: what was measured; for a prompt that could not be run an empty generation with status ``"error"``.
        too_long: whether that is because it does not fit the target's context window.
    """

    item: SuiteItem
    repeat: int
    run: Run
    too_long: bool = False

    @property
    def policy(self) -> str:
        """Its spec in the canonical spelling."""
        return self.run.generation.policy

    @property
    def error(self) -> str | None:
        """Why it could not be run, failed, or could not be scored."""
        return self.run.generation.error

    @property
    def measured(self) -> bool:
        """Whether its figures count: nothing failed, and there is a baseline."""
        return bool(self.run.generation.rounds) and self.error is None and self.run.baseline is not None

    @property
    def failed(self) -> bool:
        """Whether it failed on a prompt that the baseline could answer: the policy's or a drafter's fault."""
        return self.error is not None and self.run.baseline is not None


class SuiteRun:
    """Every prompt under every policy.

    The order of the policies rotates from prompt to prompt. Each prompt and repeat has a seed of its own, made from
    ``seed``: with one for all, a randomised policy would open every prompt with the same drafters. A policy that is
    named twice, in whatever spelling, runs once.

    Attributes:
        specs: the policies in their canonical spelling, each once.
        done: runs so far, of ``total``.
        now: prompt and policy at work.
        known: runs that need not be made again, by the place of their prompt and their policy; set it before the start.
        measurement: what measures them, if anything.

    Raises:
        PolicyError: no policy, or a bad spec.
        UserError: an invalid seed.
    """

    def __init__(
        self,
        pool: Pool,
        items: Sequence[SuiteItem],
        policies: Sequence[str],
        params: SamplingParams,
        *,
        seed: int = 0,
        repeat: int = 1,
        origin: Origin = Origin("bench"),  # noqa: B008
    ):
        self.pool, self.items, self.params = pool, items, params
        self.seed, self.repeat, self.origin = read_seed(seed), repeat, origin
        self.specs = list(dict.fromkeys(map(canonical_spec, policies)))
        check_specs(self.specs)
        for spec in self.specs:
            policy_for(pool, spec)
        self.done = 0
        self.total = len(items) * len(self.specs) * repeat
        self.now: tuple[SuiteItem, str] | None = None
        self.measurement: Measurement | None = None
        self.known: Mapping[tuple[int, str], Run] = {}
        self.measures_baseline = not any(map(is_plain, self.specs))
        self._cancelled = False

    def cancel(self) -> None:
        """End after the round in progress; may be called from another thread."""
        self._cancelled = True
        if measurement := self.measurement:
            measurement.cancel()

    def steps(
        self, measure: Callable[[Measurement], Iterable[object]], done: Callable[[Sequence[Entry]], None]
    ) -> Iterator[object]:
        """Run all, yielding between runs and where a measurement does; where it is closed, what has run until then is
        still handed over.

        Args:
            measure: carries a measurement out, step by step.
            done: called with the entries of each prompt when it has met all policies, and the baseline is known.
        """
        for turn in range(self.repeat * len(self.items)):
            repeat, index = divmod(turn, len(self.items))
            found: dict[str, Entry] = {}
            try:
                for spec in rotated(self.specs, turn):
                    if entry := self._known(index, spec):
                        found[spec], self.done = entry, self.done + 1
                        continue
                    if turn or found:
                        yield None
                    if self._cancelled:
                        return
                    self.now = self.items[index], spec
                    found[spec] = entry = self._entry(*self.now, repeat, [entry.run for entry in found.values()])
                    if self.measurement:
                        try:
                            yield from measure(self.measurement)
                        except Exception:  # which a measurement never raises: of this run nothing is known
                            del found[spec]
                            raise
                    self.done += 1
            finally:
                entries = [found[spec] for spec in self.specs if spec in found]
                settle_baseline([entry.run for entry in entries])
                done(entries)
            if all((index, spec) in self.known for spec in self.specs):
                yield None
        if self.total:
            yield None
        self.now = None

    def _known(self, place: int, spec: str) -> Entry | None:
        """What is known already of a prompt under a policy."""
        run = self.known.get((place, spec))
        return Entry(self.items[place], 0, run) if run else None

    def _entry(self, item: SuiteItem, spec: str, repeat: int, earlier: Sequence[Run]) -> Entry:
        """What is to be measured by :attr:`measurement`, or why it cannot be, and there is none."""
        request = Request(
            item.prompt,
            spec,
            self.params,
            seed_of(self.seed, item, repeat),
            replace(self.origin, task=item.task or None, prompt_id=item.id),
            measures_baseline=self.measures_baseline,
            whole_baseline=True,
            earlier=tuple(earlier),
        )
        try:
            self.measurement = Measurement(self.pool, request)
        except PromptError as error:
            self.measurement = None
            refused = Generation(item.prompt, spec, (), 0, status="error", error=str(error))
            run = Run(refused, self.params, request.seed, conditions_of(self.pool), request.origin)
            return Entry(item, repeat, run, isinstance(error, ContextWindowError))
        if self._cancelled:
            self.measurement.cancel()
        return Entry(item, repeat, self.measurement.run)

    def all(self) -> Iterator[Entry]:
        """Run all here; policies and device are warmed up on the first prompt that fits, which is not counted."""
        self._warm_up()
        ready: list[Entry] = []
        group = len(self.items) * len(self.specs)
        self.pool.previous.clear()  # or what was decoded before would be what the first prompts begin with
        for _ in self.steps(_at_once, ready.extend):
            if self.done % group == 0:
                self.pool.previous.clear()  # or the same prompts would be what those of the next repeat begin with
            yield from ready
            ready.clear()

    def _warm_up(self, rounds: int = 8) -> None:
        for item in self.items:
            try:
                decodings = [Decoding(self.pool, item.prompt, spec, self.params, learn=False) for spec in self.specs]
            except PromptError:
                continue
            for decoding in decodings:
                try:
                    deque(islice(decoding, rounds), maxlen=0)
                except Exception as error:  # it will fail again, and be reported, when it counts
                    log.info("the warm-up failed: %s", error)
            return


def _at_once(measurement: Measurement) -> Iterable[None]:
    measurement.compute()
    return ()


def rotated(order: Sequence[T], turn: int) -> list[T]:
    """The order of a turn, so that each comes first as often as the others."""
    first = turn % len(order)
    return [*order[first:], *order[:first]]


def seed_of(seed: int, item: SuiteItem, repeat: int = 0) -> int:
    """The seed of one prompt in one repeat; it depends on the prompt's id, not on its place among others."""
    return zlib.crc32(f"{seed} {item.id} {repeat}".encode())
