"""Texts that are decoded at the same time, with the forwards that they ask for at once run as one.

Whatever decodes is written for one text: it calls a model and has its answer. A :class:`Stream` runs it as a greenlet,
which stops where it calls a model. :class:`Streams` collects the calls of one model, answers them by one forward and
lets the streams go on. Outside of streams calls are answered at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from greenlet import GreenletExit, getcurrent, greenlet

from drafters.hardware import is_out_of_memory
from drafters.linear_fit import LinearFit

T = TypeVar("T")

ALONE = 64
"""Prompts of more tokens than that are answered one by one: to the others they would be padding."""


class Model(Protocol):
    """A model that can run several texts in one forward."""

    def run(self, calls: Sequence[Any]) -> Sequence[Any]:
        """The answer to each call."""


Tokens = int | Callable[[Any], int]
"""How many tokens a call feeds, where only its answer tells it a function of that."""


class Call(NamedTuple):
    """What a stream waits for: ``feed`` run by ``model``; of ``tokens`` tokens, which may be a prompt's."""

    model: Model
    feed: Any
    tokens: Tokens
    alone: bool

    def fed(self, found: Any) -> int:
        """How many tokens it fed, by its answer."""
        return self.tokens(found) if callable(self.tokens) else self.tokens


def answer(model: Model, feed: Any, tokens: Tokens, *, prompt: bool = False) -> Any:
    """What ``model`` makes of ``feed``; in a stream, together with what other streams want of it, but for prompts."""
    stream = getcurrent()
    if not isinstance(stream, Stream):
        return model.run([feed])[0]
    if torch.is_inference_mode_enabled():  # the mode is the thread's: the other streams would go on in it
        raise RuntimeError("a stream cannot wait for others in inference mode")
    return stream.parent.switch(Call(model, feed, tokens, prompt and isinstance(tokens, int) and tokens > ALONE))


def own_seconds(now: float) -> float:
    """A clock of the work that is done for the caller: in a stream it stands while others work. ``now`` is what
    ``time.perf_counter`` says."""
    stream = getcurrent()
    return stream.own + now - stream.resumed if isinstance(stream, Stream) else now


def texts_at_once() -> int:
    """How many streams share forwards with the caller's, itself included; 1 outside of streams."""
    stream = getcurrent()
    if not isinstance(stream, Stream) or not stream.streams.shares:
        return 1
    return len(stream.streams) - stream.streams.away


def let_others_on() -> None:
    """A round has ended: where streams share no forwards, the others have one before the caller goes on."""
    stream = getcurrent()
    if isinstance(stream, Stream) and not stream.streams.shares:
        stream.parent.switch(None)


class Stream(greenlet, Generic[T]):
    """Work on one text.

    Attributes:
        result: what it returned.
        error: what it raised; it has ended then.
        own: seconds of its own work: what it computed itself, and its share of forwards.
        streams: those among which it runs.
    """

    streams: Streams

    def __init__(self, work: Callable[[], T]):
        super().__init__()
        self.work = work
        self.result: T | None = None
        self.error: BaseException | None = None
        self.own, self.resumed = 0.0, 0.0

    def run(self) -> None:
        """The work; called by the first switch to the stream."""
        try:
            self.result = self.work()
        except GreenletExit:
            raise
        except BaseException as error:
            self.error = error


class Streams:
    """The streams under way.

    Args:
        last: the model that runs when no stream waits for another: the target, so that as many drafts as can be are
            verified in one forward. ``None`` where it cannot run several texts: streams take turns then.
    """

    def __init__(self, last: Hashable | None):
        self._last, self.shares = last, last is not None
        self.outside = 0.0
        """Seconds spent outside of rounds so far: on beginnings and ends of texts, and on prompts that the last model
        reads."""
        self.away = 0
        """How many of the streams another engine has left out of its present step; see :meth:`leave_out`."""
        self._waiting: dict[Stream[Any], Call | None] = {}
        self._lines: dict[int, LinearFit] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, stream: Stream[Any]) -> None:
        """Let a stream begin at the next step."""
        self._waiting[stream], stream.streams = None, self

    def close(self) -> None:
        """End all streams where they wait."""
        while self._waiting:
            stream, _ = self._waiting.popitem()
            stream.throw(GreenletExit)

    @property
    def at_last(self) -> bool:
        """Whether all wait for the model that runs last."""
        return all(call and call.model is self._last and not call.alone for call in self._waiting.values())

    def step(self, *, last: bool = True) -> list[Stream[Any]]:
        """Let new streams begin, then answer what the streams wait for: the last model only where all wait for it, and
        where it is to run here (``last``).

        Returns:
            The streams that have ended.
        """
        for stream in [stream for stream, call in self._waiting.items() if call is None]:
            self._resume(stream, None)
        for calls in self._together():
            if last or calls[0][1].model is not self._last:
                self._answer(calls)
        return self._ended()

    def resume(self, answers: Mapping[Stream[Any], Any], seconds: float) -> list[Stream[Any]]:
        """Go on where the last model runs elsewhere, until all streams wait for it again.

        Args:
            answers: what it made of the calls of these streams; the others keep waiting.
            seconds: that it took.

        Returns:
            The streams that have ended.
        """
        if calls := [(stream, call) for stream in answers if (call := self._waiting[stream])]:
            self._charge(calls, [call.fed(answers[stream]) for stream, call in calls], seconds)
        for stream, found in answers.items():
            self._resume(stream, found)
        ended = self._ended()
        while not self.at_last:
            ended += self.step(last=False)
        return ended

    def leave_out(self, others: Container[Stream[Any]]) -> int:
        """Count streams that wait and are not among ``others`` as :attr:`away`. Returns how many are left."""
        self.away = sum(1 for stream, call in self._waiting.items() if call and stream not in others)
        return len(self) - self.away

    def feed(self, stream: Stream[Any]) -> Any:
        """What a stream that waits wants of the model it waits for."""
        call = self._waiting[stream]
        return call and call.feed

    def drop(self, stream: Stream[Any]) -> None:
        """End a stream where it waits."""
        del self._waiting[stream]
        stream.throw(GreenletExit)

    def _ended(self) -> list[Stream[Any]]:
        ended = [stream for stream in self._waiting if stream.dead]
        for stream in ended:
            del self._waiting[stream]
        return ended

    def _together(self) -> list[list[tuple[Stream[Any], Call]]]:
        """The calls to be answered next, by forward."""
        waiting = [(stream, call) for stream, call in self._waiting.items() if call and not stream.dead]
        if long := [[each] for each in waiting if each[1].alone]:
            return long
        models: dict[int, list[tuple[Stream[Any], Call]]] = {}
        for stream, call in waiting:
            models.setdefault(id(call.model), []).append((stream, call))
        first = [calls for calls in models.values() if calls[0][1].model is not self._last]
        return first or list(models.values())

    def _answer(self, calls: list[tuple[Stream[Any], Call]]) -> None:
        model, begun = calls[0][1].model, time.perf_counter()
        try:
            answers = model.run([call.feed for _, call in calls])
        except BaseException as error:
            if len(calls) == 1 or not is_out_of_memory(error):
                for stream, _ in calls:  # each decides what to make of it; those that wait elsewhere go on
                    self._resume(stream, error)
                return
        else:
            seconds = time.perf_counter() - begun
            self._charge(calls, [call.fed(found) for (_, call), found in zip(calls, answers, strict=True)], seconds)
            for (stream, _), found in zip(calls, answers, strict=True):
                self._resume(stream, found)
            return
        half = len(calls) // 2  # there may be room for fewer at once; what was computed is free again by now
        self._answer(calls[:half])
        self._answer(calls[half:])

    def _charge(self, calls: list[tuple[Stream[Any], Call]], fed: Sequence[int], seconds: float) -> None:
        """Charge each stream with what the forward would have taken less without the tokens that it fed. The target
        runs in any case where there are others; what else a forward takes whatever its tokens is shared."""
        model = calls[0][1].model
        if calls[0][1].alone:
            calls[0][0].own += seconds
            self.outside += seconds if model is self._last else 0.0
            return
        total, line = sum(fed), self._lines.setdefault(id(model), LinearFit())
        line.clock(total, seconds)
        each = line.per_unit or seconds / total
        shared = 0.0 if model is self._last and len(calls) > 1 else max(seconds - each * total, 0.0)
        for (stream, _), tokens in zip(calls, fed, strict=True):
            stream.own += each * tokens + shared / len(calls)

    def _resume(self, stream: Stream[Any], found: Any) -> None:
        begins, stream.resumed = not stream, time.perf_counter()
        switch = stream.throw if isinstance(found, BaseException) else stream.switch
        self._waiting[stream] = switch(found) if found is not None else stream.switch()
        seconds = time.perf_counter() - stream.resumed
        stream.own += seconds
        if begins or stream.dead:
            self.outside += seconds
