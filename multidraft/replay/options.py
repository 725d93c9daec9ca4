"""A policy as an option for some prompts: how it is replayed, and what it takes for each of them."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from multidraft.replay.recorded import Recorded, Route, is_estimate
from multidraft.replay.walk import Replayed
from storage.figures import Ratio, ratio_of_totals


@dataclass(frozen=True, eq=False)
class Option:
    """A policy, and what it takes for each prompt, ``(prompts,)``: means over the prompt's texts.

    Attributes:
        length: most tokens that it drafts.
        decode, request: seconds of decoding and of the whole request.
        tokens, rounds: of the output; each round is a call of the target.
        estimate: whether its rounds are one: live it chooses by the clock.
        uncertainty: of measured runs, by what share timings may put their speed-ups off (``storage.figures.Ratio``).
        prompts: what tells them apart.
    """

    spec: str
    length: int
    decode: np.ndarray
    request: np.ndarray
    tokens: np.ndarray
    rounds: np.ndarray
    estimate: bool = False
    uncertainty: float | None = None
    prompts: tuple[object, ...] = ()

    @classmethod
    def of(cls, spec: str, length: int, runs: Sequence[tuple[Any, ...]], *, estimate: bool = False) -> Option:
        """Of runs ``(prompt, decode seconds, request seconds, tokens, rounds)``; the prompts are in the order of first
        appearance."""
        found: dict[object, list[tuple[float, ...]]] = {}
        for prompt, *figures in runs:
            found.setdefault(prompt, []).append(tuple(figures))
        decode, request, tokens, rounds = np.array([np.mean(each, axis=0) for each in found.values()]).T
        return cls(spec, length, decode, request, tokens, rounds, estimate, prompts=tuple(found))

    def on(self, prompts: Collection[object]) -> Option:
        """The same on some of its prompts."""
        places = [place for place, prompt in enumerate(self.prompts) if prompt in prompts]
        parts = {name: getattr(self, name)[places] for name in ("decode", "request", "tokens", "rounds")}
        return replace(self, prompts=tuple(self.prompts[place] for place in places), **parts)

    def times_as_fast(self, other: Option, part: Literal["decode", "request"] = "request") -> Ratio:
        """How many times as fast as the other it is, paired by prompt."""
        found = ratio_of_totals(getattr(other, part), getattr(self, part))
        assert found is not None, "requests take time"
        return found.of_runs((self.uncertainty, other.uncertainty))

    @property
    def single(self) -> str | None:
        """The drafter that it plays alone, if it is a policy of one."""
        return self.spec.removeprefix("fixed:") if self.spec.startswith("fixed:") else None

    @property
    def mean_accepted_tokens(self) -> float:
        """Tokens per round."""
        return float(self.tokens.sum() / self.rounds.sum())

    @property
    def calls_saved(self) -> float:
        """The share of the target's forward passes that it saves of one per token."""
        return 1.0 - float(self.rounds.sum() / self.tokens.sum())


def replayed(
    texts: Sequence[Recorded], spec: str, length: int, route: Route | None = None
) -> Generator[None, None, Option]:
    """A policy at a draft length, replayed on all texts, yielding after each."""
    played = list[Replayed]()
    for text in texts:
        played.append(text.replay(spec, route, length))
        yield
    return of_replays(texts, spec, length, played)


def of_replays(texts: Sequence[Recorded], spec: str, length: int, played: Sequence[Replayed]) -> Option:
    """A policy at a draft length, as it was replayed on the texts. A request takes the prefill of its text's baseline,
    if there is one, that of the drafters by the costs, and decoding."""
    runs = list[tuple[Any, ...]]()
    for text, p in zip(texts, played, strict=True):
        decode, baseline = p.seconds or 0.0, text.run.baseline
        prefill = (baseline.prefill_seconds if baseline else 0.0) + (p.reading_seconds or 0.0)
        runs.append((text.prompt, decode, prefill + decode, text.tokens, p.rounds))
    return Option.of(spec, length, runs, estimate=bool(spec) and is_estimate(spec))
