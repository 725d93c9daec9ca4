"""Recorded texts replayed as traffic: in their order, each begun with what those before it taught."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from drafters.traffic import suitability
from multidraft.engine.experience import traffic_with
from multidraft.replay.recorded import Recorded, Route
from multidraft.replay.walk import Replayed


def as_traffic(
    texts: Sequence[Recorded], specs: Sequence[str], route: Route | None = None, *, voice: bool = True
) -> Generator[None, None, dict[str, list[Replayed]]]:
    """Replay policies on texts of one pool, oldest first, yielding after each text.

    Policies that start from the traffic know of each prompt what the texts before it had taught, and nothing else,
    whatever was known when the text was recorded; so a spec with ``start=cold`` beside one with ``start=traffic`` shows
    what was learnt.

    Args:
        route: of the pool's router, for policies that start from it.
        voice: whether the router is a voice in the traffic too.
    """
    length = max(text.run.params.draft_length for text in texts)
    traffic = traffic_with(len(texts[0].drafters), length, route if voice else None)
    played = {spec: list[Replayed]() for spec in specs}
    for text in texts:
        prompt = text.run.generation.prompt
        known = text.beginning_with(traffic.prior(prompt))
        for spec in specs:
            played[spec].append(known.replay(spec, route))
        if told := suitability(text.table.accepted, text.run.params.draft_length):
            traffic.learn([(prompt, told)])
        yield
    return played


def in_parts(count: int, parts: Sequence[int] = (20, 60, 120, 240)) -> list[range]:
    """The queries of a stream in parts that end at these numbers, or where it does."""
    ends = [end for end in parts if end < count] + [count]
    return [range(begin, end) for begin, end in zip([0, *ends], ends, strict=False) if end > begin]
