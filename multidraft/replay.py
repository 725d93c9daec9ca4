"""Replay: any policy on a recorded greedy generation, with no model at all.

The text of a greedy run does not depend on who drafted it. So once it is known how many tokens of each drafter's
draft would have been accepted from each position, the rounds of every policy are a walk over that table: exactly the
live ones where it chooses by what was accepted, an estimate where it chooses by time (``Policy.uses_costs``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from multidraft.costs import Costs
from multidraft.errors import PolicyError
from multidraft.policies import ALL_DRAFTERS, NO_DRAFTER, Feedback, Policy, make_policy
from multidraft.policies.faults import chosen_arm, chosen_length, raised_by
from multidraft.regret import fixed_rounds


@dataclass(frozen=True)
class Replayed:
    """The rounds a policy would have played.

    Attributes:
        arms: arm of each round, ``NO_DRAFTER`` where no drafter was asked.
        lengths: draft length of each round.
        emitted: tokens of each round.
        best_arm: the drafter that alone would have needed the fewest rounds (ties: the first).
        best_rounds: its rounds, at the full draft length.
        seconds: time of all rounds by the given costs; ``None`` without costs.
    """

    arms: list[int]
    lengths: list[int]
    emitted: list[int]
    best_arm: int
    best_rounds: int
    seconds: float | None = None

    @property
    def rounds(self) -> int:
        """Rounds played."""
        return len(self.arms)

    @property
    def regret(self) -> int:
        """Stopping-time regret: rounds beyond those of the best single drafter (MetaSD Def. 1, BanditSpec Eq. 1)."""
        return self.rounds - self.best_rounds

    @property
    def mean_accepted_tokens(self) -> float:
        """Tokens a round, the own token counted."""
        return sum(self.emitted) / self.rounds if self.rounds else 0.0

    @property
    def best_arm_ratio(self) -> float:
        """In what share of the rounds with a drafter the best single one was played."""
        played = [arm for arm in self.arms if arm != NO_DRAFTER]
        return played.count(self.best_arm) / len(played) if played else 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """Rate by the given costs."""
        return sum(self.emitted) / self.seconds if self.seconds else None


def replay(
    table: np.ndarray,
    policy: str | Policy,
    seed: int = 0,
    *,
    draft_length: int | None = None,
    max_new_tokens: int | None = None,
    drafters: Sequence[str] | None = None,
    prompt: str = "",
    costs: Costs | None = None,
    route: Callable[[str], Sequence[float] | None] | None = None,
    previous: Sequence[float] | None = None,
) -> Replayed:
    """Walk ``s ← s + min(A[arm, s], k) + 1`` over a recorded generation under ``policy`` (SPEC 6).

    The rounds are those of a live run with the same seed, for every policy that looks neither at the clock
    (:attr:`Policy.uses_costs`: it meets ``costs`` here, and its own measurements live) nor at the length of drafts,
    which is only estimated for drafters that end them early. Policies that learn from block
    divergence cannot be replayed: it needs the target's distributions beyond rejected tokens.

    Args:
        table: from :func:`~multidraft.regret.acceptance_table`, int ``(drafters, positions)``.
        policy: a spec, or a policy made for as many arms as the table has rows.
        seed: the policy's seed.
        draft_length: K; by default the longest acceptance in the table.
        max_new_tokens: most tokens that the run could have emitted (its own limit or what its context window left),
            where it ended earlier at a stop token: drafts near the end are cut by it. By default the output's length.
        drafters: their names, for specs such as ``fixed:math``.
        prompt: handed to the policy.
        costs: to tell the time of every round, and to feed policies that choose by it.
        route: how well each drafter suits a prompt, such as :meth:`~drafters.pool.Pool.route`.
        previous: how each drafter did in the query before, for ``start=previous``; that start is cold without it.

    Raises:
        PolicyError: an unknown policy, one that learns from block divergence or soft acceptance, or misbehaves.
        ValueError: a table that is no ``(drafters, positions)`` array of counts.
    """
    table = np.asarray(table)
    if table.ndim != 2 or not len(table) or (table.size and table.min() < 0):
        raise ValueError(f"table must be an array of counts (drafters, positions), got the shape {table.shape}")
    count, end = table.shape
    longest = int(table.max(initial=1)) if draft_length is None else draft_length
    names = drafters or [f"arm{i}" for i in range(count)]
    player = make_policy(policy, names, seed) if isinstance(policy, str) else policy
    if player.needs_route and route is None:
        raise PolicyError(f"policy {player.name!r} needs a router")
    if player.uses_block_divergence:
        raise PolicyError(
            f"policy {player.name!r} learns from block divergence, which a recorded text does not hold; "
            "use the setting reward=be"
        )
    if player.uses_soft_gamma:
        raise PolicyError(
            f"policy {player.name!r} learns from soft acceptance, which a recorded text does not hold; use gamma=hard"
        )
    needed = [fixed_rounds(np.minimum(row, longest)) for row in table]
    player.costs, player.longest, player.route, player.hindsight = costs, longest, route, needed
    player.previous = previous
    limit = end if max_new_tokens is None else max_new_tokens
    spec = policy if isinstance(policy, str) else policy.name
    try:
        player.begin(prompt)
        arms, lengths, emitted, seconds = _walk(table, player, spec, longest, limit, costs)
    except Exception as error:
        if fault := raised_by(player, spec, error):
            raise fault from error
        raise
    best = int(np.argmin(needed))
    return Replayed(arms, lengths, emitted, best, needed[best], seconds if costs else None)


def _walk(
    table: np.ndarray, player: Policy, spec: str, longest: int, limit: int, costs: Costs | None
) -> tuple[list[int], list[int], list[int], float]:
    """Arms, draft lengths and emitted tokens of all rounds, and the seconds of them all together."""
    count, end = table.shape
    every = range(ALL_DRAFTERS, count)
    hits = (table > 0).astype(np.float64).T
    accepted_of = table.tolist()
    arms, lengths, emitted = list[int](), list[int](), list[int]()
    unread = [0] * count
    position = evaluated = 0
    seconds = 0.0
    while position < end:
        room = limit - position
        arm = chosen_arm(spec, player.select(), every) if room > 1 else NO_DRAFTER
        most = min(longest, room - 1)
        length = chosen_length(spec, player.draft_length(most), most) if arm != NO_DRAFTER else 0
        spent = 0.0
        # The union is accepted as far as the best of its drafts, the first of them credited. (The budget of its nodes
        # is taken for large enough: a table does not hold the drafts themselves.)
        if arm == ALL_DRAFTERS:
            arm = max(range(count), key=lambda i: min(accepted_of[i][position], length))
            spent = (
                sum(costs.draft_step[i] * costs.drafted(i, length) for i in range(count) if i != arm) if costs else 0.0
            )
        accepted = min(accepted_of[arm][position], length) if length else 0
        tokens = min(accepted + 1, end - position)
        if costs:
            spent += costs.round_seconds(arm if length else None, length, unread[arm], accepted)
        position += tokens
        unread = [tokens + n for n in unread]
        if length:
            unread[arm] = 1
        gamma = None
        if room > 1:
            if player.uses_gamma and player.wants_evaluation(tokens):
                gamma = hits[max(evaluated, position - (player.evaluation_span or position)) : position]
                seconds += costs.evaluation_seconds(position - evaluated) if costs else 0.0
                evaluated, unread = position, [0] * count
            drafted = round(costs.drafted(arm, length, accepted)) if costs and length else length
            player.update(Feedback(arm, drafted, accepted, tokens, length, gamma=gamma, seconds=spent))
        seconds += spent
        arms.append(arm if length else NO_DRAFTER)
        lengths.append(length)
        emitted.append(tokens)
    return arms, lengths, emitted, seconds


def best_fixed_rate(
    table: np.ndarray, costs: Costs, lengths: Sequence[int], max_new_tokens: int | None = None
) -> tuple[float, int, int]:
    """The fastest single ``(drafter, draft length)`` in hindsight: tokens per second, drafter, length.

    Length 0 is plain decoding; its drafter is ``NO_DRAFTER``. ``max_new_tokens`` is as in :func:`replay`.
    """
    rows = table.tolist()
    best = (0.0, NO_DRAFTER, 0)
    for length in lengths:
        for arm in range(len(rows)) if length else (NO_DRAFTER,):
            seconds = sum_of_rounds(rows[arm], costs, arm, length, max_new_tokens)
            best = max(best, (table.shape[1] / seconds, arm, length))
    return best


def sum_of_rounds(
    accepted: Sequence[int], costs: Costs, arm: int, length: int, max_new_tokens: int | None = None
) -> float:
    """Seconds of a whole text under one drafter and draft length, given how far each of its drafts is accepted.

    The drafter has read the prompt before the first round, and all but the target's own token before the others.
    """
    (first, *others) = fixed_walk(accepted, length, max_new_tokens)
    rounds = [((*first, 0), 1), *(((*round, 1), count) for round, count in Counter(others).items())]
    return sum(
        count * costs.round_seconds(arm if asked else None, asked, unread, reached)
        for (asked, reached, unread), count in rounds
    )


def fixed_walk(accepted: Sequence[int], length: int, max_new_tokens: int | None = None) -> list[tuple[int, int]]:
    """The rounds of one drafter at one length, given how far each of its drafts is accepted.

    Returns:
        Of each round the draft length asked for, which the end may cut, and the accepted tokens.
    """
    rounds, position = list[tuple[int, int]](), 0
    limit = len(accepted) if max_new_tokens is None else max_new_tokens
    while position < len(accepted):
        asked = min(length, limit - position - 1)
        rounds.append((asked, min(accepted[position], asked)))
        position += rounds[-1][1] + 1
    return rounds
