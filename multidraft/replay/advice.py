"""What to use for the traffic that some recorded prompts stand for: policy, draft length, drafters.

Every policy is replayed on every text with the costs measured on that machine, so all meet the same prompts and the
same clock, and differences between them are those of their choices. Policies are compared by the seconds of whole
requests, prompt by prompt (``storage.figures``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from drafters.errors import PolicyError, UserError
from multidraft.policies.specs import canonical_spec, is_plain, read_spec, replayed_as, without_divergence
from multidraft.replay.contribution import Share, contributions, superfluous
from multidraft.replay.options import Option, replayed
from multidraft.replay.recorded import Recorded, Route
from storage.figures import FEWEST_PROMPTS, FEWEST_TO_TELL, FEWEST_TOKENS, Ratio, ranks
from storage.records import PLAIN
from storage.run import Run

USUAL = ("rate-hedge", "ucb:reward=be", "ucb:reward=be,start=router", "normal-hedge", "router")
"""Policies that are always tried, beside each drafter alone and those that were recorded."""

NEWEST = 200
"""Texts that a verdict rests on, the newest, unless another number is asked for."""

SWEPT = 5
"""So many of the fastest policies are tried at shorter drafts too."""

FAR_OFF = 0.2
"""Share by which a replayed decode speed-up may be off from the measured one for replays to be relied on
(docs/figures.md has what is usual)."""

Paying = Literal["yes", "no", "open"]

Fate = Literal["keep", "remove", "alone", "open"]
"""``"alone"`` can go too, but not beside all that are to be removed."""

Live = Mapping[str, Mapping[int, tuple[float, float, float, float]]]
"""What ran live: of each policy, by prompt, seconds of the baseline's decoding, its own, and of both requests."""


@dataclass(frozen=True, eq=False)
class Advice:
    """What the prompts say.

    Attributes:
        plain: autoregressive decoding.
        options: the policies, each at its best draft length, the fastest first (by whole requests).
        about: the replayed policy that drafters and lengths are told of: the fastest where runs were measured, if it
            can be replayed, otherwise the fastest replayed.
        lengths: how many times as fast that one is at other draft lengths as at its own.
        shares: its drafters; empty where the texts are not at hand.
        removed: the drafters that can go at once, and how many times as long requests take without all of them.
        measured: what the runs of policies that ran live on these very prompts say; ``None`` where there are none.
        errors: of the policies that ran live on some of the prompts, by what share their replayed decode speed-ups are
            off from those measured.
        request_errors: likewise the speed-ups of whole requests.
        dropped: as ``errors``, of those that choose by the clock and whose replays are too far off to be among the
            options.
        repeated: of the policies that began with what past queries had taught, on how many of the prompts that was
            learnt from the very prompt; those of none are left out.
        cut: prompts whose answer was cut at the most tokens that were asked for.
        looping: prompts with an answer that ends in a loop.
        noisy: how many of the measured runs are too noisy for a speed-up of their own (``storage.figures.TOO_NOISY``),
            and of how many.
        texts: how many were replayed; 0 where runs were measured instead.
        short: further prompts, whose answers are too short for a speed-up.
        left_out: texts of other pools, machines and settings, whose costs and rounds are others.
        text: one of those replayed, for its conditions and settings.
        warning: what is to be said of the prompts; empty where there is nothing.
        apart: whether runs that were measured had different baselines (``storage.figures.at_different_times``).
    """

    plain: Option
    options: tuple[Option, ...]
    about: Option
    lengths: Mapping[int, Ratio] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()
    removed: tuple[tuple[str, ...], Ratio | None] = ((), None)
    measured: Advice | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    request_errors: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, float] = field(default_factory=dict)
    repeated: Mapping[str, int] = field(default_factory=dict)
    cut: int = 0
    looping: int = 0
    noisy: tuple[int, int] = (0, 0)
    texts: int = 0
    short: int = 0
    left_out: int = 0
    text: Run | None = None
    warning: str = ""
    apart: bool = False

    @classmethod
    def of(cls, plain: Option, options: Sequence[Option], **known: Any) -> Advice:
        """With the options in their order."""
        ordered = sorted(options, key=_seconds)
        return cls(plain, tuple(ordered), **{"about": ordered[0], **known})

    @property
    def best(self) -> Option:
        """The fastest policy."""
        return self.options[0]

    def option(self, spec: str) -> Option | None:
        """That of a policy, if it is among them."""
        return next((option for option in self.options if option.spec == spec), None)

    @property
    def unrun(self) -> Option | None:
        """The fastest policy and length that no runs were measured of; ``None`` where all were."""
        live = self.measured.options if self.measured else ()
        ran = {(option.spec, option.length) for option in live}
        return next((option for option in self.options if (option.spec, option.length) not in ran), None)

    @property
    def about_measured(self) -> bool:
        """Whether drafters and lengths are told of the policy that is first where runs were measured."""
        return self.measured is not None and replayed_as(self.measured.first.spec) == self.about.spec

    @property
    def prompts(self) -> int:
        """Distinct prompts."""
        return len(self.plain.request)

    @property
    def pays(self) -> Paying:
        """Whether speculation is faster than plain decoding; ``"open"`` where these prompts do not tell."""
        if self.over_plain(self.best).side > 0:
            return "yes"
        return "no" if self.best.times_as_fast(self.plain).side < 0 else "open"

    def over_plain(self, option: Option) -> Ratio:
        """How many times as fast as plain decoding a policy is, with the interval by which it is called faster: that
        for all policies together, as one of many would seem so by chance."""
        return option.times_as_fast(self.plain).among(len(self.options))

    @property
    def sure(self) -> Option | None:
        """The fastest of the policies that are certainly faster than plain decoding: not the fastest of all where that
        one varies too much between prompts."""
        return next((option for option in self.options if self.over_plain(option).side > 0), None)

    @cached_property
    def ranks(self) -> dict[str, int]:
        """Of the policies; those that cannot be told apart share one (``storage.figures.ranks``)."""
        return ranks({option.spec: dict(enumerate(option.request.tolist())) for option in self.options})

    def on_side(self, side: int) -> list[Option]:
        """The policies whose requests are faster (1) or slower (-1) than plain decoding by the interval that is
        shown."""
        return [option for option in self.options if option.times_as_fast(self.plain).side_shown == side]

    @property
    def none_faster(self) -> bool:
        """Whether all policies are slower by the interval that is shown."""
        return len(self.on_side(-1)) == len(self.options)

    @property
    def saving_most(self) -> list[Option]:
        """What leads where timings are too noisy for figures: the policies that save the most calls."""
        most = max(option.calls_saved for option in self.options)
        return [option for option in self.options if option.calls_saved == most]

    @property
    def first(self) -> Option:
        """The policy that is named first: the fastest, or what leads where timings are too noisy for figures."""
        return self.saving_most[0] if self.best.times_as_fast(self.plain).too_noisy else self.best

    def level(self) -> list[Option]:
        """The policies that cannot be told from the fastest."""
        return [option for option in self.options[1:] if self.ranks[option.spec] == 1]

    def slower(self) -> list[Option]:
        """Those that are slower, at the 95 % level."""
        return [option for option in self.options[1:] if self.ranks[option.spec] > 1]

    @property
    def certain(self) -> bool:
        """Whether the fastest is faster than each of the others, at the 95 % level.

        A policy that is not the best is taken for it in at most 5 % of all cases, however many there are: it would have
        to beat the best one too.
        """
        return not self.level()

    @property
    def leader(self) -> str | None:
        """The policy that is faster than each of the others and than autoregressive decoding: the only one that may be
        called the fastest, and has a star."""
        return self.best.spec if self.pays == "yes" and self.certain else None

    def fate(self, share: Share) -> Fate:
        """What is advised on a drafter, in sentences, tables and JSON alike."""
        if self.about.single and not share.asked:
            return "open"  # a policy of one drafter says nothing of the others
        if share.drafter in self.removed[0]:
            return "remove"
        if share.verdict == "remove":  # beside those that never draft it would be alone, and yet it is slower
            return "alone" if self.missed_together else "open"
        return share.verdict

    @property
    def missed_together(self) -> list[str]:
        """Of the drafters that are to be removed, those that draft."""
        return [share.drafter for share in self.shares if share.asked and share.drafter in self.removed[0]]

    @property
    def trusted(self) -> bool:
        """Whether replays are near enough to what ran live for advice to rest on them."""
        return all(abs(error) <= FAR_OFF for error in self.errors.values())


def candidates(drafters: Sequence[str], route: Route | None, more: Iterable[str] = ()) -> list[str]:
    """The policies to compare on texts of a pool, in a form that can be replayed: ``more``, the usual ones, drafters
    alone; those that need a router only with one."""
    found: dict[str, None] = {}
    for spec in (*more, *USUAL, *(f"fixed:{drafter}" for drafter in drafters)):
        with suppress(PolicyError):  # a history may hold policies that are no more
            found[without_divergence(canonical_spec(spec))] = None
    return [spec for spec in found if not is_plain(spec) and (route or not _routed(spec))]


def usable(run: Run) -> bool:
    """Whether a text has a baseline, and is long enough for a speed-up."""
    table = run.scores.acceptance
    return run.baseline is not None and table is not None and table.accepted.shape[-1] >= FEWEST_TOKENS


def advise(
    recorded: Sequence[Recorded],
    specs: Sequence[str],
    route: Route | None = None,
    memory: Mapping[str, int] | None = None,
    measured: Advice | None = None,
    live: Live | None = None,
) -> Generator[None, None, Advice]:
    """Compare policies on texts of one pool and machine, yielding after each replay.

    Policies that cannot be replayed on them are left out.

    Args:
        specs: as of :func:`candidates`.
        memory: bytes of each drafter that has any.
        measured: see :class:`Advice`.
        live: what replays are checked against.

    Raises:
        UserError: there is no text of ``FEWEST_TOKENS`` tokens with a measured baseline, or no policy to compare.
    """
    texts = [text for text in recorded if usable(text.run)]
    if not texts:
        raise UserError(
            f"no text here has {FEWEST_TOKENS} tokens or more and a measured baseline; run more or longer prompts, one "
            "text at a time"
        )
    longest = max(text.run.params.draft_length for text in texts)
    plain = yield from replayed(texts, PLAIN, longest)
    tried = list[Option]()
    for spec in specs:
        with suppress(PolicyError):
            tried.append((yield from replayed(texts, spec, longest, route)))
    if not tried:
        raise UserError("no policy can be replayed on these texts; name one with drafters of their pool")
    tried.sort(key=_seconds)
    errors = _errors(plain, tried, live or {}, "decode")
    by_clock = {option.spec for option in tried if option.estimate}
    dropped = {spec: error for spec, error in errors.items() if spec in by_clock and abs(error) > FAR_OFF}
    if len(dropped) == len(errors):  # there are no others to tell whether the costs are right
        dropped = {}
    tried = [option for option in tried if option.spec not in dropped]
    errors = {spec: error for spec, error in errors.items() if spec not in dropped}
    at_lengths: dict[str, list[Option]] = {option.spec: [option] for option in tried}
    first = replayed_as(measured.first.spec) if measured else ""
    for option in (*tried[:SWEPT], *(option for option in tried[SWEPT:] if option.spec == first)):
        for length in shorter(longest):
            at_lengths[option.spec].append((yield from replayed(texts, option.spec, length, route)))
    options = [min(each, key=_seconds) for each in at_lengths.values()]
    fastest = min(options, key=_seconds)
    best = next((option for option in options if option.spec == first), fastest)
    lengths = {other.length: other.times_as_fast(best) for other in at_lengths[best.spec] if other is not best}
    found = Advice.of(
        plain,
        options,
        about=best,
        measured=measured,
        errors=errors,
        request_errors=_errors(plain, tried, live or {}, "request"),
        dropped=dropped,
        texts=len(texts),
        text=texts[0].run,
        short=len({each.prompt for each in recorded if each.tokens < FEWEST_TOKENS} - {*plain.prompts}),
    )
    if not found.trusted:
        return found
    shares = yield from contributions(texts, best, route, memory or {})
    if found.prompts >= FEWEST_TO_TELL:
        found = replace(found, removed=(yield from superfluous(texts, best, shares, route)))
    return replace(found, lengths=lengths, shares=shares)


def _errors(
    plain: Option, options: Sequence[Option], live: Live, part: Literal["decode", "request"]
) -> dict[str, float]:
    """By what share the replayed speed-up of each policy is off on the prompts on which it ran live, where these are
    ``FEWEST_PROMPTS`` or more."""
    found = {}
    for option in options:
        ran = live.get(option.spec, {})
        on = [place for place, prompt in enumerate(option.prompts) if prompt in ran]
        if len(on) >= FEWEST_PROMPTS:
            sums = np.array([ran[option.prompts[place]] for place in on]).sum(axis=0)  # type: ignore[index]
            above, below = sums[:2] if part == "decode" else sums[2:]
            replayed = getattr(plain, part)[on].sum() / getattr(option, part)[on].sum()
            found[option.spec] = float(replayed / (above / below) - 1)
    return found


def most_replays(texts: int, specs: int, drafters: int) -> int:
    """How many replays :func:`advise` makes at the most, or about so many."""
    return texts * (1 + specs + (SWEPT + 1) * 5 + drafters + 2)


def shorter(longest: int) -> list[int]:
    """The shorter draft lengths that are tried."""
    return sorted({max(round(longest * part), 1) for part in (1 / 12, 1 / 4, 1 / 3, 1 / 2, 3 / 4)} - {longest})


def _routed(spec: str) -> bool:
    """Whether it would be another policy without a router."""
    return read_spec(spec)[0].needs_route or read_spec(spec)[1].get("start") == "router"


def _seconds(option: Option) -> float:
    return float(option.request.sum())
