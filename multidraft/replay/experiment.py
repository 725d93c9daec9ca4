"""Policies replayed on texts side by side, and which of them is the best; and the same texts as traffic."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from drafters.traffic import suitability
from multidraft.engine.experience import traffic_with
from multidraft.replay.advice import FAR_OFF, Advice
from multidraft.replay.options import Option, of_replays
from multidraft.replay.outcomes import Outcome
from multidraft.replay.recorded import Recorded, Route
from multidraft.replay.walk import Replayed
from storage.figures import Ratio, ranks
from storage.records import PLAIN

ORACLE, BEST_FIXED = "oracle", ""
"""What policies are compared with beside autoregressive decoding: the best single drafter, the fastest drafter and
length."""


@dataclass(frozen=True)
class Experiment:
    """Policies replayed on texts.

    Attributes:
        played: replays in the order of the texts, by spec; ``ORACLE``, ``PLAIN`` and ``BEST_FIXED`` among them.
        regret: after each round, mean over the texts (``outcomes.mean_regret``), of the policies that were asked for.
        measured: what the runs of policies that ran live on these very prompts say, as for the verdict.
        instead: what was replayed in the place of policies that learn from what a recorded text does not hold.
        warning: what is to be said of the prompts; empty where there is nothing.
    """

    recorded: list[Recorded]
    played: dict[str, list[Replayed]]
    regret: dict[str, np.ndarray]
    measured: Advice | None = None
    instead: Mapping[str, str] = field(default_factory=dict)
    warning: str = ""

    def outcome(self, spec: str) -> Outcome:
        """The figures of one policy."""
        return Outcome.of(self.played[spec])

    @cached_property
    def options(self) -> dict[str, Option]:
        """What was replayed, as of the verdict (``replay.options``)."""
        length = max(text.run.params.draft_length for text in self.recorded)
        return {spec: of_replays(self.recorded, spec, length, played) for spec, played in self.played.items()}

    @cached_property
    def far_off(self) -> dict[str, float]:
        """Of the policies that ran live on these prompts, those whose replays are too far from it to rank any by:
        by what share decode speed-up or tokens per round, whichever is more, is off."""
        found, live = {}, self.measured
        for spec in self.regret:
            if live is None or (ran := live.option(spec)) is None:
                continue
            if not (same := self.options[spec].on(ran.prompts)).prompts or not same.decode.all():
                continue
            plain = self.options[PLAIN].on(ran.prompts)
            speeds = [mine.times_as_fast(base, "decode").value for mine, base in ((same, plain), (ran, live.plain))]
            off = speeds[0] / speeds[1] - 1, same.mean_accepted_tokens / ran.mean_accepted_tokens - 1
            if abs(most := max(off, key=abs)) > FAR_OFF:
                found[spec] = most
        return found

    @cached_property
    def leader(self) -> str | None:
        """Of the policies that were asked for the one that is faster than each of the others, as of the verdict."""
        asked = [self.options[spec] for spec in self.regret]
        if self.far_off or not all(option.decode.all() for option in asked):
            return None
        return self._checked(Advice.of(self.options[PLAIN], asked).leader)

    @cached_property
    def fewest(self) -> str | None:
        """Likewise the one that has fewer rounds."""
        if self.far_off:
            return None
        asked = sorted((self.options[spec] for spec in self.regret), key=lambda option: option.rounds.sum())
        found = ranks({option.spec: dict(enumerate(option.rounds.tolist())) for option in asked})
        first, *level = [spec for spec, rank in found.items() if rank == 1]
        return self._checked(first) if len(asked) > 1 and not level else None

    def _checked(self, spec: str | None) -> str | None:
        """The policy, unless its rounds are estimates that no live run is there to check."""
        ran = spec and self.measured and self.measured.option(spec)
        return spec if spec and (ran or not self.options[spec].estimate) else None

    def speedups(self, spec: str) -> tuple[Ratio | None, Ratio | None]:
        """Replayed decode and request speed-up, as of the verdict; ``None`` without costs, and of requests also where a
        text has no baseline, whose prefill it would take."""
        own, plain = self.options[spec], self.options[PLAIN]
        if not own.decode.all():
            return None, None
        known = all(text.run.baseline for text in self.recorded)
        return own.times_as_fast(plain, "decode"), own.times_as_fast(plain) if known else None

    @property
    def policies(self) -> list[str]:
        """The specs that were asked for, the fastest by the measured costs first."""
        return sorted(self.regret, key=lambda spec: -(self.outcome(spec).tokens_per_second or 0.0))


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
