"""The first forwards of a pool, which take longer than all later ones and are nobody's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafters.base import Evidence
from drafters.benched import Benched
from drafters.draft import Draft
from drafters.hardware import clock_of
from drafters.sampling import SamplingParams
from multidraft.engine.arguments import check_pool
from multidraft.engine.decoding import Decoding
from storage.records import PLAIN

if TYPE_CHECKING:
    from drafters.pool import Pool

UNREAD = 100
"""Tokens that drafters read in the evaluation of a text that none has read."""


def warm_up(pool: Pool) -> None:
    """Decode a few tokens in every way, so that the next text is measured on a system that runs.

    What the first time took is forgotten: it holds the start of everything. The second leaves the pool some rounds of
    each way, by which policies know what they cost, an evaluation for which all drafters have a text to read, and a
    verification of each draft length: what drafters make of so little text is short, so that it would be the first
    long draft, whatever else the machine does then, that decides what long ones cost.

    Raises:
        UserError: the name of a pool, or anything else, in place of one.
    """
    check_pool(pool)
    for tokens in (4, 8):
        pool.costs = pool.new_costs()
        decode_each(pool, tokens)


def decode_each(pool: Pool, tokens: int) -> None:
    """Decode a text without drafters, with each one, and with a policy that evaluates all of them."""
    params = SamplingParams(max_new_tokens=tokens, draft_length=pool.draft_length)
    _measure(pool, params)
    for spec in (PLAIN, *(f"fixed:{name}" for name in pool.drafter_names), "normal-hedge:warmup=1,every=1"):
        Decoding(pool, "Hello", spec, params, learn=False).run()


def _measure(pool: Pool, params: SamplingParams) -> None:
    """Measure an evaluation of drafters that have read nothing of a text, as the first of a query is likely to be, and
    verifications."""
    text = (pool.encode("Hello") * UNREAD)[: min(UNREAD, pool.target.window // 2)]
    clock = clock_of(pool.device)
    benched = Benched(pool.drafter_names)  # what fails here fails again, and is told, when it counts
    with pool.lock:
        pool.target.prefill(text)
        pool.prepare(text, (), benched)
        pool.costs.begin(len(text), ())
        begun = clock()
        pool.gamma(Evidence(text, len(text) - 1, None, params), benched)
        pool.costs.evaluated(clock() - begun)
        for length in range(1, min(params.draft_length, (pool.target.window - len(text)) // 2) + 1):
            begun = clock()
            pool.target.score(Draft.chain(text[:length]))
            pool.costs.verify.clock(length, clock() - begun)
            pool.target.accept((), text[0])
