"""Runs a suite under several policies, interleaved prompt by prompt so that drift of the machine hits all alike."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from multidraft.bench.suites import SuiteItem
from multidraft.engine import Decoding, check_seed, policy_for
from multidraft.errors import PromptError, UserError
from multidraft.lossless import Difference, greedy_differences, parting
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
        generation: what came out; a prompt that could not be run has status ``"error"`` and its message.
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
    one for all, a randomised policy would open every prompt with the same drafters.

    A run that fails is reported with its error and the others go on.

    Raises:
        PolicyError: a bad policy spec, before anything runs.
        UserError: a seed that is none.
    """
    check_seed(seed)
    specs = [BASELINE, *(spec for spec in dict.fromkeys(policies) if spec != BASELINE)]
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
    table = None
    answered = baseline.rounds and baseline.status != "error"
    prompt_ids = pool.encode(item.prompt) if params.greedy and answered else []
    if prompt_ids and len(specs) > 1:
        table = acceptance_table(pool, prompt_ids, baseline.token_ids, params.draft_length)
    for spec, generation in generations.items():
        if generation.status == "error" or not answered:
            yield BenchRun(item, spec, repeat, seed, generation, baseline if answered else None)
            continue
        same = generation.token_ids == baseline.token_ids
        lossless: bool | None = same if params.greedy else None
        near_tie: Difference | None = None
        if lossless is False:
            # Where they part either may be the one that rounding decided.
            near_tie = parting(pool, prompt_ids, generation.token_ids, baseline.token_ids)
            faults = [d for d in greedy_differences(pool, prompt_ids, generation.token_ids) if not d.rounding]
            lossless = near_tie is not None and near_tie.rounding and not faults
            near_tie = near_tie if lossless else None
        regret = regret_of(generation, table) if table is not None and same and spec != BASELINE else None
        expected = None
        # Under draft-all no arm was chosen, so nothing can be regretted.
        if not params.greedy and generation.rounds and not spec.startswith((BASELINE, "draft-all")):
            gamma = gamma_table(pool, pool.encode(item.prompt), generation.token_ids, params)
            expected = expected_regret_of(generation, gamma, params.draft_length)
        yield BenchRun(
            item,
            spec,
            repeat,
            seed,
            generation,
            baseline,
            lossless,
            near_tie,
            regret,
            expected,
            table if regret else None,
        )


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
