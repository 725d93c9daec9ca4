"""Runs a suite under several policies, interleaved prompt by prompt so that drift of the machine hits all alike."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from multidraft.bench.suites import SuiteItem
from multidraft.engine import Decoding, check_seed, policy_for
from multidraft.errors import PromptError, UserError, told
from multidraft.lossless import Difference, greedy_differences, parting
from multidraft.policies import canonical_spec, parse_spec
from multidraft.records import Generation
from multidraft.regret import (
    ExpectedRegret,
    Regret,
    acceptance_table,
    expected_regret_of,
    gamma_table,
    regret_of,
)
from multidraft.sampling import SamplingParams

if TYPE_CHECKING:
    from drafters.pool import Pool

BASELINE = "autoregressive"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BenchRun:
    """One prompt under one policy.

    Attributes:
        policy: its spec in the canonical spelling, as the history has it.
        generation: what came out; a prompt that could not be run has status ``"error"`` and its message, and
            so has an output that could not be compared or scored.
        baseline: the autoregressive generation of the same prompt in the same repeat; ``None`` where that failed.
        seed: of this prompt and repeat, the same for all policies.
        lossless: whether the tokens equal the baseline's, or leave it only where two are all but equally probable
            (see ``near_tie``); ``None`` where that is no test (sampling, errors).
        near_tie: the first token that rounding decided otherwise than for the baseline.
        regret: against the best single drafter; ``None`` where unknown (sampling, autoregressive, errors).
        expected_regret: its expectation, for sampled runs alone.
        table: the acceptance table that it comes from.
    """

    item: SuiteItem
    policy: str
    repeat: int
    seed: int
    generation: Generation
    baseline: Generation | None = None
    lossless: bool | None = None
    near_tie: Difference | None = None
    regret: Regret | None = None
    expected_regret: ExpectedRegret | None = None
    table: np.ndarray | None = None

    @property
    def measured(self) -> bool:
        """Whether its figures count: it ended well, and there is what to compare it with."""
        return bool(self.generation.rounds) and self.generation.status != "error" and self.baseline is not None

    @property
    def failed(self) -> bool:
        """Whether it failed on a prompt that plain decoding could answer: the policy's or a drafter's fault."""
        return self.generation.status == "error" and self.baseline is not None


def run_suite(
    pool: Pool,
    items: Sequence[SuiteItem],
    policies: Sequence[str],
    params: SamplingParams,
    *,
    repeat: int = 1,
    seed: int = 0,
) -> Iterator[BenchRun]:
    """Run every prompt under every policy, plain decoding always among them.

    The order of the policies rotates from prompt to prompt. The policies and the device are warmed up on the
    first prompt that fits, which is not counted. Each prompt and repeat has a seed of its own, made from ``seed``: with
    one for all, a randomised policy would open every prompt with the same drafters. A policy that is named twice, in
    whatever spelling, runs once.

    A run that fails, or whose output cannot be scored, is reported with its error and the others go on.

    Raises:
        PolicyError: a bad policy spec, before anything runs.
        UserError: a seed that is none.
    """
    check_seed(seed)
    specs = list(dict.fromkeys([BASELINE, *map(canonical_spec, policies)]))
    for spec in specs:
        policy_for(pool, spec)
    _warm_up(pool, items, specs, params)
    turn = 0
    for round_ in range(repeat):
        pool.previous.clear()  # or the warm-up, or the same prompts, would be what the first ones begin with
        for item in items:
            order = specs[turn % len(specs) :] + specs[: turn % len(specs)]
            turn += 1
            yield from _run_prompt(pool, item, order, params, round_, seed_of(seed, item, round_))


def seed_of(seed: int, item: SuiteItem, repeat: int = 0) -> int:
    """The seed of one prompt in one repeat; it depends on the prompt's id, not on its place among others."""
    return zlib.crc32(f"{seed} {item.id} {repeat}".encode())


def _run_prompt(
    pool: Pool, item: SuiteItem, specs: Sequence[str], params: SamplingParams, repeat: int, seed: int
) -> Iterator[BenchRun]:
    generations = {spec: _generate(pool, item.prompt, spec, params, seed) for spec in specs}
    baseline = generations[BASELINE]
    answered = bool(baseline.rounds) and baseline.status != "error"

    @cache
    def table() -> np.ndarray:
        return acceptance_table(pool, pool.encode(item.prompt), baseline.token_ids, params.draft_length)

    for spec, generation in generations.items():
        run = BenchRun(item, spec, repeat, seed, generation, baseline if answered else None)
        yield _scored(pool, run, params, table) if answered and generation.status != "error" else run


def _scored(pool: Pool, run: BenchRun, params: SamplingParams, table: Callable[[], np.ndarray]) -> BenchRun:
    """The run with what its output shows; as failed, with the error, where that cannot be found out.

    Args:
        table: the acceptance table of the baseline's output, computed when it is first asked for.
    """
    try:
        return _compared(pool, run, table) if params.greedy else _expected(pool, run, params)
    except Exception as error:
        log.info("the output of %s cannot be scored", run.policy, exc_info=True)  # the report tells what it is
        failed = replace(run.generation, status="error", error=f"its output cannot be scored: {told(error)}")
        return replace(run, generation=failed)


def _compared(pool: Pool, run: BenchRun, table: Callable[[], np.ndarray]) -> BenchRun:
    """A greedy run: whether it is lossless, and its regret where its output is the baseline's."""
    assert run.baseline is not None
    ids, plain = run.generation.token_ids, run.baseline.token_ids
    if ids == plain:
        if run.policy == BASELINE:
            return replace(run, lossless=True)
        return replace(run, lossless=True, regret=regret_of(run.generation, table()), table=table())
    prompt_ids = pool.encode(run.item.prompt)
    # Where they part either may be the one that rounding decided.
    near_tie = parting(pool, prompt_ids, ids, plain)
    faults = [d for d in greedy_differences(pool, prompt_ids, ids) if not d.rounding]
    lossless = near_tie is not None and near_tie.rounding and not faults
    return replace(run, lossless=lossless, near_tie=near_tie if lossless else None)


def _expected(pool: Pool, run: BenchRun, params: SamplingParams) -> BenchRun:
    """A sampled run: its expected regret."""
    # Under draft-all no arm was chosen, so nothing can be regretted.
    if not run.generation.rounds or parse_spec(run.policy)[0] in (BASELINE, "draft-all"):
        return run
    gamma = gamma_table(pool, pool.encode(run.item.prompt), run.generation.token_ids, params)
    return replace(run, expected_regret=expected_regret_of(run.generation, gamma, params.draft_length))


def _generate(pool: Pool, prompt: str, spec: str, params: SamplingParams, seed: int) -> Generation:
    """The generation, or where it fails as much of it as there is, with its error."""
    try:
        decoding = Decoding(pool, prompt, spec, params, seed)
    except PromptError as error:
        return Generation(prompt, spec, (), 0, status="error", error=str(error))
    try:
        return decoding.run()
    except UserError:  # whoever reads the report is told once
        return decoding.generation
    except Exception as error:
        log.warning("%s failed on %r: %s", spec, prompt[:60], error)
        return decoding.generation


def _warm_up(pool: Pool, items: Sequence[SuiteItem], specs: Sequence[str], params: SamplingParams) -> None:
    for item in items:
        try:
            for spec in specs:
                _first_rounds(Decoding(pool, item.prompt, spec, params))
            return
        except PromptError:
            continue


def _first_rounds(decoding: Decoding, rounds: int = 8) -> None:
    try:
        for _ in islice(decoding, rounds):
            pass
    except Exception as error:  # it will fail again, and be reported, when it counts
        log.info("the warm-up failed: %s", error)
