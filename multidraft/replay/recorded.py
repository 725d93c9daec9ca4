"""Policies on the recorded runs of a history: what would have happened had another one chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

import numpy as np

from drafters.base import Acceptances
from drafters.card import card_file, load_card
from drafters.costs import Costs
from drafters.errors import UserError
from drafters.memory import estimate
from drafters.router import Router
from drafters.traffic import Prior
from multidraft.policies.specs import is_plain, read_spec, start_of
from multidraft.replay.machine_costs import MachineCosts
from multidraft.replay.regret import fewest, fixed_rounds
from multidraft.replay.walk import Replayed, best_fixed_rate, replay
from storage import queries, texts
from storage.filters import Filter
from storage.records import FINISHED, PLAIN
from storage.rows import prompt_of
from storage.run import Run
from storage.texts import ALL_TEXTS, TextFilter

Route = Callable[[str], Sequence[float] | None]
"""How well each drafter suits a prompt, such as :meth:`~drafters.pool.Pool.route`."""


@dataclass(frozen=True)
class Recorded:
    """A recorded greedy run, ready to be replayed, and the costs that were measured on its hardware."""

    run: Run
    costs: Costs

    @property
    def table(self) -> Acceptances:
        """The drafts that were possible at each position, ``(drafters, output positions)``."""
        table = self.run.scores.acceptance
        assert table is not None, "a text that can be replayed has a table"
        return table

    @property
    def drafters(self) -> tuple[str, ...]:
        """Their names, by the rows of the table."""
        return self.run.generation.drafters

    @property
    def tokens(self) -> int:
        return int(self.table.accepted.shape[-1])

    @property
    def limit(self) -> int | None:
        """Most tokens that the run could have emitted, where it ended earlier at a stop token."""
        run = self.run
        return max(run.params.max_new_tokens, self.tokens) if run.generation.status == "stopped" else None

    @property
    def prompt(self) -> int:
        """What tells its prompt from others, as ``prompt_hash`` does in the history."""
        return prompt_of(self.run.generation)

    def without(self, drafter: str) -> Recorded:
        """The same text, had the pool not had this drafter."""
        arm = self.drafters.index(drafter)
        left = tuple(name for name in self.drafters if name != drafter)
        table = Acceptances(*(np.delete(part, arm, axis=0) for part in self.table))
        prior = self.run.generation.prior
        run = replace(
            self.run,
            generation=replace(self.run.generation, drafters=left, prior=prior and prior.without(arm)),
            scores=replace(self.run.scores, acceptance=table),
        )
        return Recorded(run, self.costs.without(arm))

    def beginning_with(self, prior: Prior | None) -> Recorded:
        """The same text, had past queries taught this when it began."""
        return replace(self, run=replace(self.run, generation=replace(self.run.generation, prior=prior)))

    def replay(self, policy: str, route: Route | None = None, draft_length: int | None = None) -> Replayed:
        """The rounds of ``policy`` on this run's text, begun with what past queries had taught then; drafts of at most
        ``draft_length``, by default as recorded."""
        recorded = self.run.params.draft_length
        return replay(
            self.table,
            policy,
            self.run.seed,
            draft_length=min(recorded, draft_length or recorded),
            max_new_tokens=self.limit,
            drafters=self.drafters,
            prompt=self.run.generation.prompt,
            prompt_tokens=self.run.generation.prompt_tokens,
            costs=self.costs,
            route=route,
            prior=self.run.generation.prior,
        )

    def best_fixed(self) -> Replayed:
        """The fastest single drafter and draft length in hindsight; its regret is that at the recorded length."""
        table, lengths = self.table, range(self.run.params.draft_length + 1)
        _, arm, length = best_fixed_rate(table, self.costs, lengths, self.limit)
        played = self.replay(f"fixed:{self.drafters[arm]}" if length else PLAIN, None, length)
        needed = [fixed_rounds(row) for row in table.accepted]
        best = fewest(needed)
        return replace(played, best_arms=best, best_rounds=needed[best[0]])


def is_estimate(spec: str) -> bool:
    """Whether the replayed rounds of a policy are an estimate: live it chooses by the clock of that moment, or begins
    with what the query before it taught."""
    return read_spec(spec)[0].uses_costs or start_of(spec) == "previous"


def route_of(source: str | Path, drafters: Sequence[str]) -> Route | None:
    """The router of a pool that recorded texts with ``drafters``, read from its card alone, without its models.

    Args:
        source: the pool's bundled name, or the path of its card.

    Returns:
        ``None`` if the card has no router, or other drafters; the router is asked once for each prompt. Whether it is
        the one that was asked then is unknown: the card may have got another since.

    Raises:
        PoolError: there is no such card, or its router cannot be read.
    """
    card, _ = load_card(source)
    called = card.routed_names()
    if list(called) != list(drafters) or (router := Router.of_card(card.router, card_file(source))) is None:
        return None
    return lru_cache(maxsize=1024)(lambda prompt: router.suited(prompt, list(called.values())))


def route_without(route: Route | None, names: Sequence[str], gone: Sequence[str]) -> Route | None:
    """The router of a pool without some of its drafters ``names``."""
    if route is None:
        return None

    def routed(prompt: str) -> Sequence[float] | None:
        found = route(prompt)
        return None if found is None else [v for name, v in zip(names, found, strict=True) if name not in gone]

    return routed


def memory_of(source: str | Path, drafters: Sequence[str], hardware: str) -> dict[str, int]:
    """Bytes of weights and cache of each drafter, as far as the card of the pool that recorded the texts tells.

    Args:
        source: as of :func:`route_of`.
        hardware: what they were recorded on, in words.
    """
    try:
        card, _ = load_card(source)
        if list(card.routed_names()) != list(drafters):
            return {}
        parts = estimate(card, card_file(source), "cpu" if "core" in hardware else "cuda").parts
    except UserError:  # such as a card whose models are on the Hub, and the Hub out of reach
        return {}
    return {part.name: part.weights + part.cache for part in parts[1:]}


def of_newest_bench(runs: Sequence[Run]) -> list[Run]:
    """The texts of the pool and machine that wrote the first: costs and drafters of others are not comparable."""
    bench = attrgetter("conditions.card_hash", "conditions.hardware", "conditions.dtype")
    return [run for run in runs if bench(run) == bench(runs[0])]


def of_usual_setting(runs: Sequence[Run]) -> list[Run]:
    """The texts with the draft length and most new tokens that most have, the newer of two as frequent: policies ran
    under one setting each time, and figures of several would be of none."""
    setting = attrgetter("params.draft_length", "params.max_new_tokens")
    ((usual, _),) = Counter(map(setting, runs)).most_common(1)
    return [run for run in runs if setting(run) == usual]


def texts_with_costs(runs: Iterable[Run], path: Path) -> list[Recorded]:
    """Runs with the costs that the history at ``path`` tells of their machines."""
    return [text for text in with_costs(runs, MachineCosts(path)) if text]


def with_costs(runs: Iterable[Run], costs: MachineCosts) -> Iterator[Recorded | None]:
    """Runs with their costs, and ``None`` for every step of reading these."""
    for run in runs:
        yield from costs.read(run)
        yield Recorded(run, costs.costs(run))


def recorded_texts(path: Path, filter: TextFilter = ALL_TEXTS) -> list[Run]:
    """The texts of a history that can be replayed, newest first, without costs (``storage.texts.replayable``).

    Raises:
        UserError: there is none; of a single run, the message says why it cannot be replayed.
    """
    if not path.exists():
        raise UserError(f"there is no database {path}; bench --db and the app write one")
    if found := texts.replayable(path, filter):
        return found
    if filter.id is not None:
        if texts.replayable(path, TextFilter(id=filter.id)):
            raise UserError(f"run {filter.id} is not among the runs that the other filters choose")
        raise UserError(f"run {filter.id} cannot be replayed: {_why_not(path, filter.id)}")
    batches = filter.runs.batch_id
    if len(batches) == 1 and (why := _why_none(path, batches[0])):
        raise UserError(f"no run of batch {batches[0]} can be replayed; of the latest: {why}")
    drafted, filtered = "by a policy with drafters", replace(filter, newest=ALL_TEXTS.newest) != ALL_TEXTS
    lacking = f"run, {drafted}, that matches the filters" if filtered else f"run {drafted}"
    raise UserError(f"no run can be replayed: {path} has no finished greedy {lacking}")


def none_replayable(path: Path, batch: str) -> str:
    """Why no run of a batch, race or benchmark can be replayed, as a sentence; empty if some can, or there is none."""
    why = _why_none(path, batch)
    return why and f"None of its runs can be replayed. The latest: {why}."


def _why_none(path: Path, batch: str) -> str:
    runs = Filter(batch_id=(batch,))
    if texts.size(path, TextFilter(runs, newest=1)).texts:
        return ""
    found = queries.listed(path, runs, limit=500)
    drafted = found[found["policy"] != PLAIN]
    id = next(iter((found if drafted.empty else drafted)["id"]), None)
    return "" if id is None else _why_not(path, int(id))


def _why_not(path: Path, id: int) -> str:
    run = queries.run(path, id)
    if run is None:
        return "there is no run of this number"
    if run.reported:
        return "it is from another tool's file, which does not tell what the drafters drafted"
    if run.generation.status not in FINISHED:
        return f"it did not finish (status: {run.generation.status})"
    if run.params.temperature:
        return "it was sampled, and another policy would have led to another text"
    if is_plain(run.generation.policy):
        return "it was decoded without drafters, so nothing is known about theirs"
    return "it was recorded without an acceptance table; run the prompt again"
