"""Asking the drafters of a pool, in groups where that goes; and going on without those that fail."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from drafters.base import Drafter, DrafterGroup
from drafters.errors import DraftError, UserError, first_line
from drafters.hardware import free_unused, is_out_of_memory

log = logging.getLogger(__name__)

_traced = set[tuple[str, type]]()
"""Drafters with the types of errors whose traceback is in the log already."""

LONGEST = 300
"""Characters of what is told of a failure."""


class Benched:
    """The drafters of a pool that failed in the query under way: they are asked nothing more until it ends.

    Attributes:
        why: what happened, by name.
        tokens: of the output so far, for the record.

    Args:
        names: of all drafters, in the pool's order.
    """

    def __init__(self, names: Sequence[str]):
        self._names = names
        self.why: dict[str, str] = {}
        self.tokens = 0

    def __contains__(self, arm: int) -> bool:
        return self._names[arm] in self.why

    def add(self, arm: int, error: Exception) -> None:
        """Bench a drafter for what it raised."""
        name, own = self._names[arm], isinstance(error, UserError | DraftError)
        told = first_line(error) if own else f"{type(error).__name__}: {first_line(error)}"
        self.why[name] = f"{told[:LONGEST]} (after {self.tokens:,} tokens)"
        cause = error.__cause__ if own else error  # of a drafter of one's own, what its file raised, if it did
        kind = name, type(cause)
        log.warning("drafter %s is benched for this query: %s", name, told, exc_info=None if kind in _traced else cause)
        _traced.add(kind)
        if is_out_of_memory(error):
            traceback.clear_frames(error.__traceback__)  # which hold what was being computed
            free_unused()

    @contextmanager
    def by(self, arm: int) -> Iterator[None]:
        """Bench a drafter if what follows fails, and go on after it."""
        try:
            yield
        except Exception as error:
            self.add(arm, error)


def ask(
    drafters: Sequence[Drafter],
    arms: Iterable[int],
    what: Callable[[Drafter | DrafterGroup, int | list[int]], object],
    benched: Benched | None = None,
) -> None:
    """Call ``what`` for each group all of whose members are among ``arms``, and for each other drafter of them.

    Args:
        what: is handed the drafter or group, and its arm or arms.
        benched: they are not asked, and what fails joins them: of a group, each member is asked alone to find out which
            it was. Without it errors are raised, with a note of the names.
    """
    for judge, of in _judges(drafters, [arm for arm in arms if benched is None or arm not in benched]):
        try:
            what(judge, of)
        except Exception as error:
            if benched is None:  # of a drafter of one's own the message alone does not say which it was
                names = [drafters[arm].name for arm in ([of] if isinstance(of, int) else of)]
                error.add_note(f"drafter {', '.join(names)}")
                raise
            if isinstance(of, int):
                benched.add(of, error)
                continue
            for arm in of:
                with benched.by(arm):
                    what(drafters[arm], arm)


def _judges(drafters: Sequence[Drafter], arms: Sequence[int]) -> list[tuple[Drafter | DrafterGroup, int | list[int]]]:
    """Groups all of whose members are among ``arms``, and the other drafters; each with its arms."""
    chosen = [drafters[arm] for arm in arms]
    found: dict[int, tuple[Drafter | DrafterGroup, int | list[int]]] = {}
    for arm, drafter in zip(arms, chosen, strict=True):
        group = drafter.group
        if group is not None and all(member in chosen for member in group.members):
            found[id(group)] = group, [arms[chosen.index(member)] for member in group.members]
        else:
            found[id(drafter)] = drafter, arm
    return list(found.values())
