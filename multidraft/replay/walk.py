"""Replay: any policy on a recorded greedy generation, with no model at all.

The text of a greedy run does not depend on who drafted it. So once it is known how many tokens of each drafter's
draft would have been accepted from each position, the rounds of every policy are a walk over that table: exactly the
live ones where it chooses by what was accepted, an estimate where it chooses by time (``Policy.uses_costs``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from drafters.arguments import texts_of, whole
from drafters.base import Acceptances, hits_by_depth
from drafters.costs import Costs, CostSource, Unread
from drafters.errors import PolicyError, quoted
from drafters.traffic import Prior
from multidraft.engine.arguments import read_seed
from multidraft.policies import ALL_DRAFTERS, NO_DRAFTER, Context, Feedback, Policy, make_policy
from multidraft.policies.faults import chosen_arm, chosen_length, chosen_readers, chosen_span, raised_by
from multidraft.policies.static import Autoregressive, Fixed
from multidraft.replay.regret import fewest, fixed_rounds


@dataclass(frozen=True)
class Replayed:
    """The rounds a policy would have played.

    Attributes:
        arms: arm of each round, ``NO_DRAFTER`` where no drafter was asked.
        lengths: draft length of each round.
        emitted: tokens of each round.
        best_arms: the drafters that alone would have needed the fewest rounds.
        best_rounds: their rounds, at the full draft length.
        seconds: time of all rounds by the given costs; ``None`` without costs.
        reading_seconds: likewise that in which drafters read the prompt and the policy began, before the first round.
        accepted: drafted tokens of each round that are in the output: all of them where one of these ends it.
    """

    arms: list[int]
    lengths: list[int]
    emitted: list[int]
    best_arms: tuple[int, ...]
    best_rounds: int
    seconds: float | None = None
    reading_seconds: float | None = None
    accepted: Sequence[int] = ()

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
        """Tokens per round, the target's own token included."""
        return sum(self.emitted) / self.rounds if self.rounds else 0.0

    @property
    def drafted_rounds(self) -> int:
        """Rounds with a drafter."""
        return self.rounds - self.arms.count(NO_DRAFTER)

    @property
    def best_arm_rounds(self) -> int:
        """Those of them that played a best single one."""
        return sum(arm in self.best_arms for arm in self.arms)

    @property
    def best_arm_ratio(self) -> float:
        """The share of the rounds with a drafter that played a best single one; 0 where none had one."""
        return self.best_arm_rounds / self.drafted_rounds if self.drafted_rounds else 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """Rate by the given costs."""
        return sum(self.emitted) / self.seconds if self.seconds else None


def replay(
    table: np.ndarray | Acceptances,
    policy: str | Policy,
    seed: int = 0,
    *,
    draft_length: int | None = None,
    max_new_tokens: int | None = None,
    drafters: Sequence[str] | None = None,
    prompt: str = "",
    prompt_tokens: int = 0,
    costs: CostSource | None = None,
    route: Callable[[str], Sequence[float] | None] | None = None,
    prior: Prior | None = None,
) -> Replayed:
    """Walk ``s ← s + min(A[arm, s], k) + 1`` over a recorded generation under ``policy``.

    The rounds are those of a live run with the same seed and draft length whose policy is told the same, ``route`` and
    ``prompt`` above all, for every policy that does not look at the clock (:attr:`Policy.uses_costs`: it meets
    ``costs`` here, and its own measurements live). Policies that learn from block
    divergence cannot be replayed: it needs the target's distributions beyond rejected tokens.

    Args:
        table: how much of each drafter's draft begun at each position is accepted, int ``(drafters, positions)``, from
            :func:`~multidraft.replay.regret.acceptance_table`; or with the drafts' sizes, from
            :meth:`~drafters.pool.Pool.acceptances`, which make the times exact.
        policy: a spec, or a policy made for as many arms as the table has rows.
        seed: the policy's seed.
        draft_length: K; by default the longest acceptance in the table. Longer drafts than those it was made with count
            as if nothing beyond were accepted.
        max_new_tokens: most tokens that the run could have emitted (its own limit or what its context window left),
            where it ended earlier at a stop token: drafts near the end are cut by it. By default the output's length.
        drafters: their names (:attr:`~drafters.pool.Pool.drafter_names`), for specs such as ``fixed:math``; by default
            ``arm0``, ``arm1``, …
        prompt, prompt_tokens: handed to the policy; ``route`` is asked for this prompt.
        costs: to tell the time of every round, and to feed policies that choose by it: those of a history, or as a
            pool has measured them so far (``pool.costs``).
        route: how well each drafter suits a prompt, such as :meth:`~drafters.pool.Pool.route`.
        prior: what past queries had taught about such prompts.

    Raises:
        PolicyError: an unknown policy, one that learns from block divergence or soft acceptance, or misbehaves.
        UserError: a seed that is none.
        ValueError: a table that is no ``(drafters, positions)`` array of counts, or of other drafters than are named;
            a draft length below 0; a text longer than ``max_new_tokens``; or another argument that is none.
    """
    text = _Text(table)
    count, end = text.accepted.shape
    longest = whole(text.accepted.max(initial=1) if draft_length is None else draft_length)
    if longest is None or longest < 0:  # it would never come to the end
        raise ValueError(f"draft_length must be a whole number from 0 on, got {quoted(draft_length)}")
    _check_told(prompt, costs, route, prior)
    text.costs = known_costs = costs.costs(longest) if costs is not None else None
    if known_costs and len(known_costs.draft_step) != count:
        raise ValueError(f"the table has {count} drafters, but the costs are of {len(known_costs.draft_step)}")
    names = texts_of([f"arm{i}" for i in range(count)] if drafters is None else drafters)
    if names is None:
        raise ValueError(f"drafters must be a list of their names, such as pool.drafter_names, got {quoted(drafters)}")
    if len(names) != count:
        raise ValueError(f"drafters must name each row of the table, which has {count}; got {len(names)}")
    seed = read_seed(seed)
    player = policy if isinstance(policy, Policy) else make_policy(policy, names, seed)
    if player.arm_count not in (0, count):
        raise PolicyError(f"the policy was made for {player.arm_count} drafters, but the table has {count}")
    if player.needs_route and route is None:
        raise PolicyError(
            f"policy {player.name!r} needs a router: give that of a pool that has one (route=pool.route, prompt=...)"
        )
    unknown = "policy {!r} learns from {}, which a recorded text does not hold; use {}"
    if player.uses_block_divergence:
        raise PolicyError(unknown.format(player.name, "block divergence", "the setting reward=be"))
    if player.uses_soft_gamma:
        raise PolicyError(unknown.format(player.name, "soft acceptance", "gamma=hard"))
    needed = [fixed_rounds(row, longest) for row in text.accepted]
    limit = _limit_of(end, max_new_tokens)
    spec = policy if isinstance(policy, str) else policy.name
    try:
        known = Context(prompt, longest, known_costs, route, hindsight=needed, prompt_tokens=prompt_tokens, prior=prior)
        player.begin(known)
        readers, reading = chosen_readers(spec, player.candidates(), count), None
        if known_costs:
            start, text.overhead = known_costs.choosing(player.name)
            reading = start + known_costs.reading(readers, prompt_tokens)
        unread = Unread(count, prompt_tokens, readers)
        rounds = list(_walk(text, player, spec, longest, limit, unread))
    except (Exception, SystemExit) as error:
        if fault := raised_by(player, spec, error):
            raise fault from error
        raise
    best = fewest(needed)
    arms, lengths, emitted, accepted, seconds = map(list, zip(*rounds)) if rounds else ([], [], [], [], [])
    return Replayed(arms, lengths, emitted, best, needed[best[0]], sum(seconds) if costs else None, reading, accepted)


def _limit_of(tokens: int, max_new_tokens: int | None) -> int:
    """Most tokens that a text of so many could have had; a :class:`ValueError` where it has more, or that is none."""
    if (limit := whole(tokens if max_new_tokens is None else max_new_tokens)) is None:
        raise ValueError(f"max_new_tokens must be a whole number, got {quoted(max_new_tokens)}")
    if limit < tokens:
        raise ValueError(f"the text has {tokens:,} tokens, more than max_new_tokens ({limit:,})")
    return limit


def _check_told(prompt: object, costs: object, route: object, prior: object) -> None:
    """Raise a :class:`ValueError` for what no policy could be told; it would be taken for the policy's fault."""
    for name, given, right, such in (
        ("prompt", prompt, isinstance(prompt, str), "a text"),
        ("costs", costs, costs is None or callable(getattr(costs, "costs", None)), "such as pool.costs"),
        ("route", route, route is None or callable(route), "a function of the prompt, such as pool.route"),
        ("prior", prior, prior is None or isinstance(prior, Prior), "of a pool's traffic: pool.traffic.prior(prompt)"),
    ):
        if not right:
            raise ValueError(f"{name} must be {such}, got {quoted(given)}")


class _Text:
    """The drafts that a recorded text knows, and what they cost.

    Attributes:
        accepted: int ``(drafters, positions)``.
        sizes: tokens in depth and nodes of each draft, likewise; ``None`` where they can only be expected.
        overhead: seconds that the policy takes in a round.
    """

    def __init__(self, table: np.ndarray | Acceptances, costs: Costs | None = None):
        self.sizes, self.costs, self.overhead = None, costs, 0.0
        if isinstance(table, Acceptances):
            self.sizes, table = (table.drafted.tolist(), table.nodes.tolist()), table.accepted
        try:
            self.accepted = counts = np.asarray(table)
        except ValueError:
            told = "table must be an array of counts (drafters, positions), got rows that are not of one length"
            raise ValueError(told) from None
        numbers = not counts.size or (np.issubdtype(counts.dtype, np.integer) and counts.min() >= 0)
        if counts.ndim != 2 or not len(counts) or not numbers:
            got = f"got {counts.dtype} of the shape {counts.shape}"
            raise ValueError(f"table must be an array of counts (drafters, positions), {got}")

    def size(self, arm: int, position: int, length: int, accepted: int) -> tuple[float, float]:
        """Tokens in depth and nodes of a draft of up to ``length`` tokens.

        A shorter draft than recorded is its beginning; of a tree it is taken for as wide.
        """
        if self.sizes is not None:
            drafted, nodes = self.sizes[0][arm][position], self.sizes[1][arm][position]
            return (drafted, nodes) if drafted <= length else (length, nodes * length / drafted)
        return self.costs.expected(arm, length, accepted) if self.costs else (length, length)

    def seconds(self, drafts: Mapping[int, tuple[float, float]], nodes: float, unread: Sequence[int]) -> float:
        """Seconds of a round in which these drafters draft (tokens in depth, nodes) and ``nodes`` are verified."""
        if self.costs is None:
            return 0.0
        drafting = sum(self.costs.drafting(arm, drafted, unread[arm]) for arm, (drafted, _) in drafts.items())
        return drafting + self.overhead + self.costs.verification(nodes)


def _walk(
    text: _Text, player: Policy, spec: str, longest: int, limit: int, unread: Unread
) -> Iterator[tuple[int, int, int, int, float]]:
    """Arm, draft length, emitted tokens, accepted ones and seconds of each round."""
    count, end = text.accepted.shape
    every = range(ALL_DRAFTERS, count)
    hits = hits_by_depth(text.accepted, longest) if player.uses_gamma else None
    accepted_of = text.accepted.tolist()
    position = evaluated = 0
    while position < end:
        room = limit - position
        arm = chosen_arm(spec, player.select(), every) if room > 1 else NO_DRAFTER
        most = min(longest, room - 1)
        length = chosen_length(spec, player.draft_length(most), most) if arm != NO_DRAFTER else 0
        together = arm == ALL_DRAFTERS
        asked = () if not length else range(count) if together else (arm,)
        found = {i: min(accepted_of[i][position], length) for i in asked}
        drafts = {i: text.size(i, position, length, found[i]) for i in asked}
        # The union of all drafts is accepted as far as the best of them, the first of which is credited.
        if together:
            arm = max(asked, key=lambda i: found[i], default=NO_DRAFTER)
        accepted = found[arm] if asked else 0
        # Drafts share the nodes that are accepted; others are counted for each. (The budget of nodes is taken for large
        # enough: a table does not hold the drafts themselves.)
        nodes = accepted + sum(drafts[i][1] - found[i] for i in asked)
        tokens = min(accepted + 1, end - position)
        spent, evaluation = text.seconds(drafts, nodes, unread.tokens), 0.0
        position += tokens
        unread.emitted(tokens, asked)
        gamma = None
        if room > 1:
            if hits is not None and player.wants_evaluation(tokens):
                span = chosen_span(spec, player.evaluation_span) or position
                gamma = hits[max(evaluated, position - span) : position]
                evaluation = text.costs.evaluation_seconds(unread.mean) if text.costs else 0.0
                evaluated = position
                unread.evaluated()
            drafted = round(drafts[arm][0]) if asked else 0
            player.update(Feedback(arm, drafted, accepted, tokens, length, gamma=gamma, seconds=spent))
        yield arm if asked else NO_DRAFTER, length, tokens, accepted, evaluation + spent


def best_fixed_rate(
    table: np.ndarray | Acceptances, costs: Costs, lengths: Sequence[int], max_new_tokens: int | None = None
) -> tuple[float, int, int]:
    """The fastest single ``(drafter, draft length)`` in hindsight: tokens per second, drafter, length.

    Length 0 is autoregressive decoding; its drafter is ``NO_DRAFTER``. ``max_new_tokens`` is as in :func:`replay`.
    Where nothing was measured, as of texts that were decoded beside others, each round counts as one second.
    """
    text = _Text(table, costs)
    count, end = text.accepted.shape
    names, limit, best = [f"arm{i}" for i in range(count)], _limit_of(end, max_new_tokens), (0.0, NO_DRAFTER, 0)
    for length in lengths:
        for arm in range(count) if length else (NO_DRAFTER,):
            player = Fixed(names, drafter=names[arm]) if length else Autoregressive(names)
            _, text.overhead = costs.choosing(player.name)
            rounds = list(_walk(text, player, player.name, length, limit, Unread(count)))
            seconds = sum(seconds for *_, seconds in rounds) or len(rounds)
            best = max(best, (end / seconds, arm, length))
    return best
