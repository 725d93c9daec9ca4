"""Runs a suite under several policies, interleaved prompt by prompt so that drift of the machine hits all alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multidraft.bench.suites import SuiteItem
from multidraft.engine import Decoding, generate
from multidraft.errors import PromptError
from multidraft.policies import make_policy
from multidraft.records import Generation
from multidraft.regret import Regret, acceptance_table, regret_of
from multidraft.sampling import SamplingParams

if TYPE_CHECKING:
    from drafters.pool import Pool

BASELINE = "autoregressive"


@dataclass(frozen=True)
class BenchRun:
    """One prompt under one policy.

    Attributes:
        generation: what came out; a prompt that could not be run has status ``"error"`` and its message.
        baseline: the autoregressive generation of the same prompt in the same repeat.
        lossless: whether the tokens equal the baseline's; ``None`` where that is no test (sampling, errors).
        regret: against the best single drafter; ``None`` where unknown (sampling, autoregressive, errors).
    """

    item: SuiteItem
    policy: str
    repeat: int
    generation: Generation
    baseline: Generation | None = None
    lossless: bool | None = None
    regret: Regret | None = None


def run_suite(
    pool: Pool,
    items: Sequence[SuiteItem],
    policies: Sequence[str],
    params: SamplingParams,
    *,
    repeat: int = 1,
    seed: int = 0,
) -> Iterator[BenchRun]:
    """Run every prompt under every policy, the autoregressive baseline first among them.

    The order of the policies rotates from prompt to prompt. The policies and the device are warmed up on the
    first prompt that fits, which is not counted.

    Raises:
        PolicyError: a bad policy spec, before anything runs.
    """
    specs = [BASELINE, *(spec for spec in dict.fromkeys(policies) if spec != BASELINE)]
    for spec in specs:
        make_policy(spec, [drafter.name for drafter in pool.drafters], seed)
    _warm_up(pool, items, specs, params)
    turn = 0
    for item in items:
        for round_ in range(repeat):
            order = specs[turn % len(specs) :] + specs[: turn % len(specs)]
            turn += 1
            yield from _run_prompt(pool, item, order, params, round_, seed)


def _run_prompt(
    pool: Pool, item: SuiteItem, specs: Sequence[str], params: SamplingParams, repeat: int, seed: int
) -> Iterator[BenchRun]:
    generations: dict[str, Generation] = {}
    for spec in specs:
        try:
            generations[spec] = generate(pool, item.prompt, spec, params, seed)
        except PromptError as error:
            failed = Generation(item.prompt, spec, (), 0, status="error", error=str(error))
            yield from (BenchRun(item, spec, repeat, failed) for spec in specs)
            return
    baseline = generations[BASELINE]
    table = None
    if params.greedy and len(specs) > 1:
        prompt_ids = pool.encode(item.prompt)
        table = acceptance_table(pool, prompt_ids, baseline.token_ids, params.draft_length)
    for spec, generation in generations.items():
        same = generation.token_ids == baseline.token_ids if params.greedy else None
        regret = regret_of(generation, table) if table is not None and same and spec != BASELINE else None
        yield BenchRun(item, spec, repeat, generation, baseline, same, regret)


def _warm_up(pool: Pool, items: Sequence[SuiteItem], specs: Sequence[str], params: SamplingParams) -> None:
    for item in items:
        try:
            for spec in specs:
                decoding = Decoding(pool, item.prompt, spec, params)
                for round_ in decoding:
                    if round_.index >= 7:
                        break
            return
        except PromptError:
            continue
