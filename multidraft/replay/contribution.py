"""What each drafter contributes to a policy: its share of the tokens, and what requests take without it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from multidraft.replay.options import Option, replayed
from multidraft.replay.recorded import Recorded, Route, route_without
from storage.figures import Ratio, ratio_of_totals

NEGLIGIBLE = 1.01
"""A drafter is not missed if without it requests take, at the 95 % level, less than so many times as long."""

LEAST_SHARE = 0.005
"""A drafter that proposes less of the tokens is not kept for how others are chosen in its presence."""


@dataclass(frozen=True)
class Share:
    """What a drafter does under the policy chosen.

    Attributes:
        asked: whether the policy ever plays it.
        share: of the output's tokens, those that it proposed.
        without: how many times as long requests take without it; ``None`` where it is never or always the one played.
        memory: bytes of its weights and cache; ``None`` where unknown.
    """

    drafter: str
    asked: bool
    share: float
    without: Ratio | None
    memory: int | None = None

    @property
    def verdict(self) -> Literal["keep", "remove", "open"]:
        """Whether it pays beside all others, as far as that can be told."""
        if self.without is None:
            return "keep" if self.asked else "remove"
        if self.without.low is None or self.without.high is None:
            return "open"
        if self.without.high < NEGLIGIBLE:
            return "remove"
        return "keep" if self.without.side == 1 and self.share >= LEAST_SHARE else "open"


def contributions(
    texts: Sequence[Recorded], best: Option, route: Route | None, memory: Mapping[str, int]
) -> Generator[None, None, tuple[Share, ...]]:
    """Each drafter left out in turn."""
    names, tokens = texts[0].drafters, sum(text.tokens for text in texts)
    proposed, asked = dict.fromkeys(names, 0), set[str]()
    for text in texts:
        played = text.replay(best.spec, route, best.length)
        at = 0
        for arm, length, emitted in zip(played.arms, played.lengths, played.emitted, strict=True):
            if arm >= 0:
                asked.add(names[arm])
                proposed[names[arm]] += min(int(text.table.accepted[arm, at]), length)
            at += emitted
        yield
    shares = []
    for name in names:
        found = None
        if name in asked and len(asked) > 1:
            left = [text.without(name) for text in texts]
            other = yield from replayed(left, best.spec, best.length, route_without(route, names, [name]))
            found = ratio_of_totals(other.request, best.request)
        shares.append(Share(name, name in asked, proposed[name] / tokens, found, memory.get(name)))
    return tuple(shares)


def superfluous(
    texts: Sequence[Recorded], best: Option, shares: Sequence[Share], route: Route | None
) -> Generator[None, None, tuple[tuple[str, ...], Ratio | None]]:
    """The drafters that none misses one by one, and together neither: else the one missed most stays, and so one does
    of equal ones."""
    names = texts[0].drafters
    going = [share for share in shares if share.verdict == "remove"]
    going.sort(key=lambda share: share.without.value if share.without else 0.0)
    if len(going) == len(names):
        going.pop()
    while going:
        gone = [name for name in names if any(share.drafter == name for share in going)]
        if all(share.without is None for share in going):  # they never draft
            return tuple(gone), None
        left = list(texts)
        for name in gone:
            left = [text.without(name) for text in left]
        other = yield from replayed(left, best.spec, best.length, route_without(route, names, gone))
        found = ratio_of_totals(other.request, best.request)
        if found and found.high is not None and found.high < NEGLIGIBLE:
            return tuple(gone), found
        going.pop()
    return (), None
