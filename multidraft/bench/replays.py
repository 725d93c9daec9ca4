"""Policies on the recorded runs of a history: what would have happened had another one chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from multidraft.bench.history import read_table
from multidraft.bench.machine_costs import MachineCosts
from multidraft.costs import Costs
from multidraft.errors import UserError
from multidraft.policies import check_specs, make_policy, parse_spec
from multidraft.policies.base import read_spec, stand_ins
from multidraft.records import FINISHED
from multidraft.regret import fixed_rounds
from multidraft.replay import Replayed, best_fixed_rate, replay
from storage import queries, texts
from storage.texts import ALL_TEXTS, TextFilter

Route = Callable[[str], Sequence[float] | None]
"""How well each drafter suits a prompt, such as :meth:`~drafters.pool.Pool.route`."""


@dataclass(frozen=True)
class Recorded:
    """A recorded greedy run, ready to be replayed, and the costs that were measured on its hardware."""

    run: dict[str, Any]
    costs: Costs

    @property
    def table(self) -> np.ndarray:
        """Its acceptance table ``(drafters, output positions)``."""
        return read_table(self.run["acceptance"], len(self.run["drafters"]))

    @property
    def limit(self) -> int | None:
        """Most tokens that the run could have emitted, where it ended earlier at a stop token."""
        run = self.run
        return max(run["max_new_tokens"], run["output_tokens"]) if run["status"] == "stopped" else None

    def replay(self, policy: str, route: Route | None = None, draft_length: int | None = None) -> Replayed:
        """The rounds of ``policy`` on this run's text; drafts of at most ``draft_length``, by default as recorded."""
        run = self.run
        return replay(
            self.table,
            policy,
            run["seed"],
            draft_length=min(run["draft_length"], draft_length or run["draft_length"]),
            max_new_tokens=self.limit,
            drafters=run["drafters"],
            prompt=run["prompt"],
            costs=self.costs,
            route=route,
        )

    def best_fixed(self) -> Replayed:
        """The fastest single drafter and draft length in hindsight; its regret is that at the recorded length."""
        table, run = self.table, self.run
        _, arm, length = best_fixed_rate(table, self.costs, range(run["draft_length"] + 1), self.limit)
        played = self.replay(f"fixed:{run['drafters'][arm]}" if length else "autoregressive", None, length)
        needed = [fixed_rounds(row) for row in table]
        best = int(np.argmin(needed))
        return replace(played, best_arm=best, best_rounds=needed[best])


def is_estimate(spec: str) -> bool:
    """Whether the replayed rounds of a policy are an estimate: live it chooses by the clock of that moment, or begins
    with what the query before it taught."""
    kind, values = read_spec(spec)
    return kind.uses_costs or values.get("start", kind.start) == "previous"


def route_of(source: str | Path, drafters: Sequence[str]) -> Route | None:
    """The router of a pool that recorded texts with ``drafters``, read from its card alone, without its models.

    Args:
        source: the pool's bundled name, or the path of its card.

    Returns:
        ``None`` if the card has no router, or other drafters; the router is asked once for each prompt. Whether it is
        the one that was asked then cannot be told: the card may have got another since.

    Raises:
        PoolError: there is no such card, or its router cannot be read.
    """
    from drafters.card import find_card, load_card
    from drafters.pool import load_router

    card, _ = load_card(path := find_card(source))
    called = card.routed_names()
    router = load_router(card, path) if list(called) == list(drafters) else None
    if router is None:
        return None
    return lru_cache(maxsize=1024)(lambda prompt: router.suited(prompt, list(called.values())))


def recorded_runs(path: Path, filter: TextFilter = ALL_TEXTS) -> Iterator[Recorded]:
    """The texts of a history that can be replayed, newest first, with their costs.

    Raises:
        UserError: as :func:`recorded_texts`.
    """
    yield from (text for text in with_costs(recorded_texts(path, filter), MachineCosts(path)) if text)


def with_costs(rows: Sequence[dict[str, Any]], costs: MachineCosts) -> Iterator[Recorded | None]:
    """Recorded texts with their costs, and ``None`` for every step of reading these."""
    for row in rows:
        for _ in costs.read(row):
            yield None
        yield Recorded(row, costs.costs(row))


def recorded_texts(path: Path, filter: TextFilter = ALL_TEXTS) -> list[dict[str, Any]]:
    """The same without costs (``storage.texts.replayable``).

    Raises:
        UserError: there is none; of a single run, the message says why it cannot be replayed.
    """
    if not path.exists():
        raise UserError(f"there is no database {path}; bench --db and the app write one")
    if found := texts.replayable(path, filter):
        return found
    if filter.id is not None:
        raise UserError(f"run {filter.id} cannot be replayed: {_why_not(path, filter.id)}")
    raise UserError(f"no run can be replayed: {path} must hold finished greedy runs by a policy with drafters")


def _why_not(path: Path, id: int) -> str:
    run = queries.run(path, id)
    if run is None:
        return "there is no run of this number"
    if run["status"] not in FINISHED:
        return f"it did not finish (status: {run['status']})"
    if run["temperature"]:
        return "it was sampled, and another policy would have led to another text"
    if parse_spec(run["policy"])[0] == "autoregressive":
        return "it was decoded without drafters, so nothing is known about theirs"
    return "it was recorded without an acceptance table; run the prompt again"


def without_divergence(spec: str) -> str:
    """``spec`` with ``reward=be`` where it would learn from block divergence, which a recorded text does not hold.

    Raises:
        PolicyError: no pool can play it.
    """
    check_specs([spec], live=False)
    kind, values = read_spec(spec)
    if kind.name != "fixed" and make_policy(spec, stand_ins(values)).uses_block_divergence:
        return f"{spec}{',' if ':' in spec else ':'}reward=be"
    return spec
