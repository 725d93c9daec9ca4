"""What the parts of a round cost in seconds: measured while decoding, used to choose and to score policies."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from drafters.crowd import Crowd
from drafters.linear_fit import LinearFit

NEXT_TO_NOTHING = 2
"""A drafter that has to read no more tokens than that drafts as if it had read all."""

STALE, DOUBTED = 0.1, 0.5
"""Weight at which half of what was measured of a drafter's drafts is believed, once it has faded, and the least that is
believed: a drafter that looked too dear at a bad time gets cheaper in each round without it, and is tried again."""

PLAIN_MEMORY = 0.8
"""Weight of the measured time of a round without a draft one such round later. There are few while drafts pay, and what
they took before the machine got busy would end drafting, by which it takes now: a handful of new ones outweigh it."""


@dataclass(frozen=True)
class Costs:
    """Seconds of the parts of a round.

    Attributes:
        draft_step: per drafted token, by drafter ``(N,)``.
        catch_up: per token that a drafter has to read before it can draft, ``(N,)`` (MetaSD App. H.1).
        verify: of scoring ``k`` drafted tokens and the pending one, for ``k = 0 … K``, ``(K + 1,)`` or more.
        evaluate: of evaluating all drafters once, whatever the number of tokens.
        evaluate_token: per token that a drafter reads in an evaluation, on average, whatever the span.
        overrun: probability that a drafter of which no more will be accepted drafts another token, after each,
            ``(N,)``; 1 by default, as of drafters that always draft what they are asked for.
        width: nodes to verify per token of a draft's depth, ``(N,)``: 1 by default, as of chains.
        draft_start: of beginning a draft, ``(N,)``; 0 by default.
        read_start: of having to read more than ``NEXT_TO_NOTHING`` before, as after another drafter's rounds, whatever
            the number, ``(N,)``; 0 by default.
        overhead: of choosing and learning, per round, whatever the policy.
        start: of a policy's beginning, before the first round, likewise.
        by_policy: start and overhead of those that were measured, by name.
        texts: how many are decoded at once. In a batch ``verify`` begins with a text's part of a round without drafts,
            and all else is by how much the round gets longer.
        drafts: whether texts may draft now.
    """

    draft_step: np.ndarray
    catch_up: np.ndarray
    verify: np.ndarray
    evaluate: float = 0.0
    evaluate_token: float = 0.0
    overrun: np.ndarray | None = None
    width: np.ndarray | None = None
    draft_start: np.ndarray | None = None
    read_start: np.ndarray | None = None
    overhead: float = 0.0
    start: float = 0.0
    by_policy: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    texts: int = 1
    drafts: bool = True

    @classmethod
    def uniform(cls, drafters: int, length: int, *, step: float, verify: float, evaluate: float = 0.0) -> Costs:
        """The same for all drafters and any length, as for models whose time is spent on reading weights."""
        return cls(np.full(drafters, step), np.zeros(drafters), np.full(length + 1, verify), evaluate)

    def costs(self, length: int) -> Costs:
        """Itself: what is given does not change, unlike what a :class:`CostMeter` measures."""
        return self

    def without(self, arm: int) -> Costs:
        """Those of the pool without a drafter, whose part of an evaluation is that of what all take to read a token."""
        reading = float(self.catch_up.sum())
        part = float(self.catch_up[arm]) / reading if reading else 1.0 / len(self.catch_up)
        names = ("draft_step", "catch_up", "overrun", "width", "draft_start", "read_start")
        left: dict[str, Any] = {name: np.delete(of, arm) for name in names if (of := getattr(self, name)) is not None}
        evaluation = self.evaluate * (1.0 - part), self.evaluate_token * (1.0 - part)
        return replace(self, **left, evaluate=evaluation[0], evaluate_token=evaluation[1])

    def expected(self, arm: int, length: int, accepted: int = 0) -> tuple[float, float]:
        """Tokens in depth and nodes of a draft of up to ``length`` tokens of which ``accepted`` are accepted, where
        nothing more is known of it."""
        go_on = 1.0 if self.overrun is None else float(self.overrun[arm])
        drafted = max(accepted + sum(go_on**further for further in range(1, length - accepted + 1)), 1.0)
        return drafted, drafted * (1.0 if self.width is None else float(self.width[arm]))

    def drafting(self, arm: int, drafted: float, unread: int = 0) -> float:
        """Seconds in which ``arm`` reads ``unread`` tokens and drafts; to find nothing takes as long as a token."""
        start = 0.0 if self.draft_start is None else float(self.draft_start[arm])
        if self.read_start is not None and unread > NEXT_TO_NOTHING:
            start += float(self.read_start[arm])
        return start + float(self.draft_step[arm]) * max(drafted, 1.0) + float(self.catch_up[arm]) * unread

    def choosing(self, policy: str) -> tuple[float, float]:
        """Seconds that a policy of this name takes before the first round, and in each."""
        return self.by_policy.get(policy, (self.start, self.overhead))

    def reading(self, arms: Iterable[int], tokens: int) -> float:
        """Seconds in which these drafters read a prompt of so many tokens."""
        return float(sum(self.catch_up[arm] for arm in arms)) * tokens

    def verification(self, nodes: float) -> float:
        """Seconds of verifying so many nodes; beyond K, which trees may exceed, as the last step goes on."""
        last = len(self.verify) - 1
        below = min(int(nodes), max(last - 1, 0))
        return float(self.verify[below] + (nodes - below) * (self.verify[min(below + 1, last)] - self.verify[below]))

    def evaluation_seconds(self, tokens: float) -> float:
        """Seconds of evaluating all drafters, which read ``tokens`` tokens for it on average."""
        return self.evaluate + self.evaluate_token * tokens


class Unread:
    """How many ``tokens`` each drafter has to read before it can draft.

    Args:
        prompt_tokens: of the query that begins.
        readers: the drafters that have read them already; by default all.
    """

    def __init__(self, drafters: int, prompt_tokens: int = 0, readers: Collection[int] | None = None):
        readers = range(drafters) if readers is None else readers
        self.tokens = [0 if arm in readers else prompt_tokens for arm in range(drafters)]

    @property
    def mean(self) -> float:
        return sum(self.tokens) / len(self.tokens) if self.tokens else 0.0

    def emitted(self, tokens: int, arms: Iterable[int]) -> None:
        """A round emitted ``tokens`` tokens, for which ``arms`` drafted: of one's own draft all is read but the
        target's own token."""
        self.tokens = [unread + tokens for unread in self.tokens]
        for arm in arms:
            self.tokens[arm] = 1

    def evaluated(self) -> None:
        """All drafters were evaluated at the last token."""
        self.tokens = [0] * len(self.tokens)


class CostMeter:
    """Fading averages of what rounds have cost on this device, kept by a pool across generations.

    Drafting is modelled as ``a_i + depth * d_i + unread * s_i``: the time of a drafter that had next to nothing to read
    gives ``a_i`` and ``d_i``, what others took beyond that gives ``s_i``, for which long readings count most: a forward
    takes a while however little it reads. Before a drafter was ever measured its tokens cost
    nothing: one that looked as dear as the others would never be tried where those do not pay. One that always had more
    to read costs what is certain: to read a token takes it no longer than to draft one. How many tokens it drafts
    beyond those that are accepted is taken for geometric: how long its drafts are says more of the text than of the
    drafter, which drafts long where it knows the task and soon stops where it does not. Verification is a line in the
    drafted tokens, except without a draft, whose single token may go another way through the kernels: whether
    drafting pays at all hangs on it, so it is measured by itself.

    Args:
        drafters: how many there are.
        shapes: of each its shape, where drafters of one shape are known to take equally long: what is measured of one
            of them is measured of all, or those that have hardly drafted would look as dear as their first rounds.
        alone: whether it measures texts that are decoded alone.

    Attributes:
        in_batches: the meter of several texts decoded at once, when the parts of a round cost each of them less.
    """

    def __init__(self, drafters: int, shapes: Sequence[Hashable] | None = None, *, alone: bool = True):
        self.in_batches = CostMeter(drafters, shapes, alone=False) if alone else self
        self.plain, self.verify, self.evaluation = LinearFit(memory=PLAIN_MEMORY), LinearFit(), LinearFit()
        shapes = range(drafters) if shapes is None else shapes
        self.shapes = [shapes.index(shape) for shape in shapes]  # by the first drafter that has it
        self.firsts = sorted({*self.shapes})
        self.places = [self.firsts.index(first) for first in self.shapes]
        steps, reads = ([LinearFit(origin=origin) for _ in range(drafters)] for origin in (1.0, 0.0))
        self.steps, self.reads = ([lines[first] for first in self.shapes] for lines in (steps, reads))
        self.widths = [LinearFit() for _ in range(drafters)]
        self.chances, self.overran, self.least = ([0.0] * drafters for _ in range(3))
        self.rounds, self.last = [0], [0] * drafters  # lists, which copies of the meter share like its lines
        self.crowd = Crowd()
        self.begin()

    def begin(self, prompt_tokens: int = 0, readers: Collection[int] | None = None, *, by_time: bool = False) -> None:
        """A query begins, under a policy that chooses by what is measured here, or not (``by_time``); the other
        arguments are those of :class:`Unread`."""
        self.unread, self.by_time = Unread(len(self.steps), prompt_tokens, readers), by_time

    def played(
        self,
        arm: int | None,
        length: int,
        nodes: int,
        draft_seconds: float,
        verify_seconds: float,
        emitted: int,
        depth: int | None = None,
        accepted: int | None = None,
        together: bool = False,
    ) -> None:
        """A round was played.

        Args:
            arm: who drafted, ``None`` for nobody, and for all of whom each took an unknown part of the time.
            length: draft length asked for.
            nodes: drafted tokens that the target scored.
            emitted: tokens that everybody else now has to read.
            depth: of the draft, where it was a tree; of a chain it is the number of nodes.
            accepted: drafted tokens among those emitted, where one of them is the last; by default all but one.
            together: whether all drafted.
        """
        (self.verify if nodes or self.crowd.texts > 1 else self.plain).clock(nodes, verify_seconds)
        self.crowd.played(emitted, together or arm is not None)
        self.rounds[0] += self.by_time
        if arm is not None:
            self.last[self.shapes[arm]] = self.rounds[0]
            drafted = max(nodes if depth is None else depth, 1)  # to find nothing to say takes a look too
            if nodes:
                self.widths[arm].add(1.0, nodes / drafted)
                vain = max(drafted - (emitted - 1 if accepted is None else accepted), 0)
                self.chances[arm] = LinearFit.MEMORY * self.chances[arm] + min(vain + 1, length - drafted + vain)
                self.overran[arm] = LinearFit.MEMORY * self.overran[arm] + vain
            unread, step = self.unread.tokens[arm], self.steps[arm]
            too_dear = step.weight > 0 and draft_seconds < LinearFit.FASTER * step.at(drafted)  # reading included
            if unread <= NEXT_TO_NOTHING or too_dear:
                step.clock(drafted, draft_seconds)
            elif step.weight:
                self.reads[arm].add(unread, max(draft_seconds - step.at(drafted), 0.0))
            else:
                shape = self.shapes[arm]
                self.least[shape] = max(self.least[shape], draft_seconds / (drafted + unread))
        self.unread.emitted(emitted, range(len(self.steps)) if together else () if arm is None else (arm,))

    @property
    def drafts(self) -> bool:
        return self.crowd.drafts

    def evaluated(self, seconds: float) -> None:
        """All drafters have read what they had not and were evaluated there."""
        self.evaluation.clock(self.unread.mean, seconds)
        self.unread.evaluated()

    def _trust(self, shape: int) -> float:
        """How far what was measured of drafts is trusted: less from round to round in which one might have been made. A
        draft says again what it takes, or that it takes no less."""
        weight = self.steps[shape].weight
        faded = LinearFit.MEMORY ** (self.rounds[0] - self.last[shape])
        return max(faded * (weight + STALE) / (weight * faded + STALE), DOUBTED) if weight else 1.0

    def _drafting(self, shape: int) -> tuple[float, float]:
        """Seconds per drafted token, and of beginning a draft."""
        line, trust = self.steps[shape], self._trust(shape)
        return (trust * line.per_unit, trust * line.fixed) if line.weight else (self.least[shape], 0.0)

    def _reading(self, shape: int) -> float:
        """Seconds per token to read, 0 where unknown; the first time that one read and drafted both are taken to cost
        alike, per token."""
        line = self.reads[shape]
        return line.proportional if line.weight else self.least[shape]

    def costs(self, length: int) -> Costs:
        """The present estimates, for drafts of up to ``length`` tokens."""
        line = self.verify if self.verify.weight else self.plain
        share = self.crowd.share
        # The first may be measured apart, and a slope takes two more.
        verify = line.per_unit * np.arange(max(length, 2) + 1) + (line.fixed if share is None else share)
        if self.plain.weight and self.crowd.texts == 1:  # in a batch a single token goes no other way than several
            verify[0] = self.plain.mean
        measured = np.array([(self._reading(first), *self._drafting(first)) for first in self.firsts]).reshape(-1, 3)
        catch_up, draft_step, draft_start = measured[self.places].T
        if (known := catch_up > 0.0).any():  # of those that have not read, the mean of those that have
            catch_up = np.where(known, catch_up, catch_up.sum() / known.sum())
        evaluation, reading = self.evaluation, self.evaluation.per_unit
        if catch_up.any():  # few evaluations tell little: together they take no longer to read than one after the other
            reading = min(reading, float(catch_up.sum()))
        evaluate = evaluation.mean - reading * evaluation.x / evaluation.weight if evaluation.weight else 0.0
        usual = sum(self.overran) / sum(self.chances) if any(self.chances) else 1.0
        overrun = [on / of if of else usual for on, of in zip(self.overran, self.chances, strict=True)]
        return Costs(
            draft_step=draft_step,
            catch_up=catch_up,
            verify=verify,
            evaluate=evaluate,
            evaluate_token=reading,
            overrun=np.array(overrun),
            width=np.array([line.mean if line.weight else 1.0 for line in self.widths]),
            draft_start=draft_start,
            texts=self.crowd.texts,
            drafts=self.drafts,
        )


CostSource = Costs | CostMeter
"""Where a policy reads the costs."""
