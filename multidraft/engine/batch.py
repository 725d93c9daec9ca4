"""Continuous batches: several texts decoded at once, each with a policy, drafters and draft lengths of its own."""

from __future__ import annotations

import copy
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from drafters.arguments import whole
from drafters.caches import Waiting
from drafters.errors import PolicyError, PromptError, TextMemoryError, UserError, quoted
from drafters.models.streams import Stream, Streams
from drafters.sampling import SamplingParams
from multidraft.engine.arguments import check_pool
from multidraft.engine.decoding import Decoding
from multidraft.engine.output import Output
from multidraft.policies import Policy
from storage.records import Generation

if TYPE_CHECKING:
    from drafters.pool import Pool

T = TypeVar("T")

MOST = 16
"""Texts that are decoded at once by default, at most."""


@dataclass(frozen=True, eq=False)
class Text(Waiting, Generic[T]):
    """A text to decode: what does it with a pool, and how many tokens it may have, prompt and answer."""

    work: Callable[[Pool], T]
    tokens: int


class Batch:
    """Texts under way on one pool, which join and leave as they come, as far as there is room for their caches.

    What decodes a text is what decodes it alone, so outputs are the same; in a step the forwards that all of them wait
    for run as one. Where the library's own forward has the target, which cannot do so, texts take turns, which last a
    round.

    Texts under way hold the pool's lock for this thread. A batch ends them when it is closed, at the end of a ``with``
    block, or as soon as nothing refers to it.

    Args:
        pool: what decodes; each text has caches of its own beside it.
        most: texts at once at most.
    """

    def __init__(self, pool: Pool, most: int = MOST):
        self.pool, self.most = pool, most
        shared = pool.costs.in_batches
        # Others may be under way at the same time, and whether drafts pay is compared over rounds of one batch. A new
        # one goes on from where the one begun before it has come to.
        shared.crowd = copy.copy(shared.crowd)
        shared.crowd.begin()
        self.costs = copy.copy(shared)  # its measurements are shared
        self._streams = streams = Streams(getattr(pool.target.decoder, "runs", None))
        self._pools: dict[Stream[Any], Pool] = {}
        self._idle: list[Pool] = []
        self._drafting = 0.0  # for the target's step under way, where that is in another engine
        weakref.finalize(self, _end, streams, self._pools, self._idle).atexit = False

    def __len__(self) -> int:
        return len(self._streams)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self, text: Text[T]) -> Stream[T] | None:
        """Let a text begin at the next step, with a pool of its own; ``None`` if there is no room for it now.

        There is none while :attr:`most` texts are under way, or while its caches would not fit beside those of others,
        in this batch or outside (:meth:`~drafters.caches.Caches.admit`).
        """
        if len(self) >= self.most:
            return None
        if not self._idle:
            self._idle.append(self.pool.twin())
        pool = self._idle[-1]
        if not pool.caches.admit(text, pool, text.tokens):
            return None
        self._idle.pop()
        pool.costs = copy.copy(self.costs)
        stream = Stream(lambda: text.work(pool))
        self._pools[stream] = pool
        self._streams.add(stream)
        return stream

    def step(self) -> list[Stream[Any]]:
        """Go on until the target has run once for all that wait for it; returns the streams that have ended."""
        ended, begun = list[Stream[Any]](), time.perf_counter() - self._streams.outside
        shares = self._streams.shares
        with self.pool.lock:
            self.costs.crowd.texts = len(self) if shares else 1
            verified = False
            while len(self) and not verified:
                verified = self._streams.at_last
                ended += self._streams.step()
                if not shares:
                    break
        if verified:
            self.costs.crowd.passed(time.perf_counter() - self._streams.outside - begun)
        self._leave(ended)
        return ended

    def resume(self, answers: Mapping[Stream[Any], Any], seconds: float) -> list[Stream[Any]]:
        """Go on where the target runs in another engine, until all wait for it again; as of
        :meth:`~drafters.models.streams.Streams.resume`."""
        begun, outside, crowd = time.perf_counter(), self._streams.outside, self.costs.crowd
        with self.pool.lock:
            crowd.texts = self._streams.leave_out(answers)
            ended = self._streams.resume(answers, seconds)
        if len(answers) == crowd.texts:  # with others new among them it was no round of so many
            crowd.passed(self._drafting + seconds)
        self._drafting = time.perf_counter() - begun - (self._streams.outside - outside)
        self._leave(ended)
        return ended

    def feed(self, stream: Stream[Any]) -> Any:
        """What a stream that waits wants of the target."""
        return self._streams.feed(stream)

    def grow(self, stream: Stream[Any], tokens: int) -> bool:
        """Whether the text of a stream may have so many tokens from now on."""
        pool = self._pools[stream]
        return pool.caches.grow(pool, tokens)

    def drop(self, stream: Stream[Any]) -> None:
        """End a text where it is."""
        self._streams.drop(stream)
        self._leave([stream])

    def steps(self, texts: Iterable[Text[T]]) -> Generator[list[Stream[T]]]:
        """Decode all of these, each as soon as there is room; yields the streams that have ended in each step.

        Where it is closed, those under way end where they are.
        """
        waiting = deque(texts)
        try:
            while waiting or len(self):
                while waiting and self.start(waiting[0]) is not None:
                    waiting.popleft()
                yield self.step()
        finally:
            if waiting:
                self.pool.caches.leave(waiting[0])
            self.close()

    def run(self, decodings: Iterable[Decoding]) -> list[Generation]:
        """Decode all of these, in whose order the generations are.

        Raises:
            TextMemoryError: what others decode outside leaves no room for one of them.
            Exception: what one of them raised; the others end where they are.
        """
        decodings = list(decodings)
        with closing(self.steps(map(text_of, decodings))) as steps:
            for ended in steps:
                for stream in ended:
                    if stream.error:
                        raise stream.error
                if not ended and not len(self):
                    raise TextMemoryError("the caches of texts that are decoded elsewhere leave no room for this one")
        return [decoding.generation for decoding in decodings]

    def close(self) -> None:
        """End all texts where they are."""
        _end(self._streams, self._pools, self._idle)

    def _leave(self, ended: Iterable[Stream[Any]]) -> None:
        for stream in ended:
            pool = self._pools.pop(stream)
            pool.caches.end(pool)
            self._idle.append(pool)


def _end(streams: Streams, pools: dict[Stream[Any], Pool], idle: list[Pool]) -> None:
    """End all texts of a batch, and let the caches of all twins go."""
    streams.close()
    for twin in [*pools.values(), *idle]:
        twin.caches.end(twin)
        twin.disband()
    pools.clear()
    idle.clear()


def generate_batch(
    pool: Pool,
    prompts: Sequence[str | Sequence[int]],
    policy: str | Sequence[str | Policy] = "normal-hedge",
    params: SamplingParams | Sequence[SamplingParams] | None = None,
    seed: int | Sequence[int] | np.ndarray = 0,
    size: int = 8,
    output: Output = Output(),  # noqa: B008
) -> list[Generation]:
    """Decode several prompts, ``size`` at once; the next one begins when one has ended. Where one fails all end.

    Args:
        policy, params, seed: of each, or a list with those of every prompt; with a list, or an array, of seeds the same
            prompt gives several samples.

    The other arguments and errors are those of :class:`~multidraft.engine.decoding.Decoding`.

    Returns:
        A generation for each prompt, in their order.
    """
    if isinstance(prompts, str) or not isinstance(prompts, Iterable):
        got = "one text" if isinstance(prompts, str) else quoted(prompts)
        raise PromptError(f"generate_batch takes a list of prompts, not {got}; generate decodes one")
    check_pool(pool)
    if (most := whole(size)) is None or most < 1:
        raise UserError(
            f"size, the number of prompts decoded at once, must be a whole number from 1 on, got {quoted(size)}"
        )
    prompts = list(prompts)
    policies = _each("policy", policy, len(prompts))
    own = [id(player) for player in policies if isinstance(player, Policy)]
    if most > 1 and len(set(own)) < len(own):
        raise PolicyError("prompts that are decoded at once cannot share a Policy; give its spec, or one for each")
    given = zip(prompts, policies, _each("params", params, len(prompts)), _each("seed", seed, len(prompts)))
    with Batch(pool, most) as batch:
        return batch.run(_asked(number, pool, each, output) for number, each in enumerate(given, start=1))


def _asked(number: int, pool: Pool, given: tuple[Any, Any, Any, Any], output: Output) -> Decoding:
    """The decoding of one of several prompts; errors tell which."""
    try:
        return Decoding(pool, *given, output=output)
    except PromptError as error:
        raise type(error)(f"prompt {number}: {error}") from None


def _each(name: str, value: Any, count: int) -> Sequence[Any]:
    """``count`` times a value, or as many as there are in a list or an array."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise UserError(f"{name} is a list of {len(value)} for {count} prompts; give one for each, or one for all")
    return value


def text_of(decoding: Decoding) -> Text[Generation]:
    """A decoding that has not begun, to be run in a batch."""

    def decode(twin: Pool) -> Generation:
        decoding.pool = twin
        return decoding.run()

    return Text(decode, decoding.longest)
