"""Regret against the best single drafter in hindsight: exact for greedy generations, expected for sampled ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from drafters.arguments import texts_of, whole_numbers
from drafters.base import Evidence
from drafters.errors import PromptError, quoted
from drafters.sampling import SamplingParams, probabilities
from multidraft.engine.arguments import check_ids, check_pool
from multidraft.engine.lossless import teacher_forced
from multidraft.policies.delayed import expected_accept_lengths
from storage.records import Generation
from storage.run import Scores

if TYPE_CHECKING:
    from drafters.pool import Pool


def acceptance_table(
    pool: Pool,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    draft_length: int | None = None,
    without: Collection[str] = (),
) -> np.ndarray:
    """``A[i, s]``: how many tokens of drafter ``i``'s greedy draft begun at output position ``s`` would be accepted.

    Needs no target call: a greedy target's text is the same whoever drafts it. With the size of each draft, from which
    replays compute the time, it is :meth:`~drafters.pool.Pool.acceptances`.

    Args:
        prompt_ids, output_ids: the recorded generation.
        draft_length: drafts hold at most so many tokens; by default the pool's draft length.
        without: drafters whose rows are 0, such as those that failed in the run (``generation.benched``).

    Returns:
        int64 ``(drafters, output positions)``, entries in ``0 … draft_length``.

    Raises:
        PromptError: something else in place of token ids, an empty prompt, or ids that the target does not have.
        ValueError: a draft length out of range, or a drafter that the pool does not have.
        Exception: what a drafter raised, with its name in a note.
    """
    check_pool(pool)
    prompt, output = whole_numbers(prompt_ids), whole_numbers(output_ids)
    if prompt is None or output is None:
        raise PromptError("an acceptance table is made from token ids: pool.encode(prompt) and generation.token_ids")
    check_ids(pool, prompt)
    check_ids(pool, [*prompt, *output])
    length = pool.draft_length if draft_length is None else draft_length
    SamplingParams(draft_length=length)  # refuses one that no run can have
    if (names := texts_of(without)) is None:
        raise ValueError(f"without must be a list of drafters' names, got {quoted(without)}")
    if unknown := [name for name in names if name not in pool.drafter_names]:
        raise ValueError(f"the pool has no drafter {unknown[0]!r:.60}; its drafters: {', '.join(pool.drafter_names)}")
    return pool.acceptances([*prompt, *output], len(prompt), length, without=names).accepted


def fixed_ends(accepted: Sequence[int] | np.ndarray, length: int | None = None) -> list[int]:
    """Where the rounds of one drafter end, by its row of the acceptance table: ``s ← s + min(row[s], length) + 1``.

    Args:
        length: draft length asked for; ``None`` for as much as is accepted.
    """
    row, ends, position = np.asarray(accepted).tolist(), list[int](), 0
    while position < len(row):
        found = row[position] if length is None else min(row[position], length)
        position = min(position + found + 1, len(row))  # a draft may hold the last token, too
        ends.append(position)
    return ends


def fixed_rounds(accepted: Sequence[int] | np.ndarray, length: int | None = None) -> int:
    """Rounds that one drafter needs for the whole output (:func:`fixed_ends`)."""
    return len(fixed_ends(accepted, length))


def fewest(needed: Sequence[int]) -> tuple[int, ...]:
    """The best single drafters, by the rounds that each of them needs alone; of several all are as good."""
    return tuple(arm for arm, rounds in enumerate(needed) if rounds == min(needed))


def regret_of(generation: Generation, table: np.ndarray) -> Scores:
    """Stopping-time regret of a greedy generation, given its acceptance table (MetaSD Def. 1, BanditSpec Eq. 1).

    It is negative where switching beat every single drafter; of equally good ones the first is named.
    """
    needed = [fixed_rounds(row) for row in table]
    best = fewest(needed)
    arms = [r.arm for r in generation.rounds if r.arm is not None]
    return Scores(
        regret_rounds=len(generation.rounds) - needed[best[0]],
        best_drafter=generation.drafters[best[0]],
        best_arm_ratio=sum(arm in best for arm in arms) / len(arms) if arms else 0.0,
        drafter_rounds=dict(zip(generation.drafters, needed, strict=True)),
    )


def regret_by_round(emitted: Sequence[int], table: np.ndarray, best: int | None = None) -> np.ndarray:
    """Regret as it grew within a greedy generation.

    Args:
        emitted: tokens of each round.
        table: its acceptance table ``(drafters, output positions)``.
        best: the drafter to compare with; by default the one that is best over the whole text.

    Returns:
        int64 ``(rounds,)``: rounds so far minus those that this drafter needs for the same tokens. The last entry is
        the generation's regret.
    """
    if best is None:
        best = int(np.argmin([fixed_rounds(row) for row in table]))
    reached = np.cumsum(emitted)
    return np.arange(1, len(reached) + 1) - (np.searchsorted(fixed_ends(table[best]), reached) + 1)


def gamma_table(
    pool: Pool,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    params: SamplingParams,
    chunk: int = 64,
    without: Collection[str] = (),
) -> np.ndarray:
    """Acceptance probabilities ``(output positions, K, drafters)`` of a sampled generation, by depth.

    Target and drafters read the finished text, ``chunk`` positions a forward, but for drafters named in ``without``.
    """
    context, rows = list(prompt_ids), []
    with pool.lock:
        for start, tokens, logits in teacher_forced(pool, prompt_ids, output_ids, chunk):
            context += tokens
            p, first = probabilities(logits, params), len(prompt_ids)
            rows.append(pool.gamma(Evidence(context, first + start, p, params, first), without=without))
    return np.concatenate(rows) if rows else np.empty((0, params.draft_length, len(pool.drafters)))


def expected_regret_of(generation: Generation, gamma: np.ndarray, draft_length: int) -> Scores:
    """Expected regret of a sampled generation, given its ``gamma`` (see :func:`gamma_table`): what the drafts were
    expected to bring, not what they did.

    It is ``sum_t f_t[i_t] - min_i sum_t f_t[i]`` over the rounds ``t``, with ``f_t[i] = 1 - EAL_K[i] / (K + 1)`` from
    where round ``t`` began. It is that of the choice of drafters: every round with one counts as if it had drafted
    ``draft_length`` tokens. Rounds within K tokens of the end are left out, since their lengths are not known; without
    any other there is no regret. The best drafter's share is that of all rounds with a drafter.

    Source: HedgeSpec §3.1, with the losses of §3.3.
    """
    losses = 1.0 - expected_accept_lengths(gamma, draft_length) / (draft_length + 1)
    begins = np.cumsum([0, *(r.emitted for r in generation.rounds)])
    played = [(r.arm, at) for r, at in zip(generation.rounds, begins) if r.arm is not None and at < len(losses)]
    if not played:
        return Scores()
    arms, places = np.array(played).T
    totals = losses[places].sum(axis=0)
    best = int(totals.argmin())
    loss = float(losses[places, arms].sum() - totals[best])
    chosen = [r.arm for r in generation.rounds if r.arm is not None]
    ratio = chosen.count(best) / len(chosen)
    return Scores(expected_regret=loss, best_drafter=generation.drafters[best], best_arm_ratio=ratio)
