"""Continuous batches: several texts decoded at once, each with a policy, drafters and draft lengths of its own."""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from drafters.errors import PromptError
from drafters.models.streams import Stream, Streams
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.engine.decoding import Decoding
from storage.records import Generation

T = TypeVar("T")

MOST = 16
"""Texts that are decoded at once by default, at most."""


class Batch:
    """Texts under way on one pool, which join and leave as they come.

    What decodes a text is what decodes it alone, so outputs are the same; in a step the forwards that all of them wait
    for run as one. Only :class:`~drafters.models.onnx_model.OnnxModel` can do so: where another runtime has the target,
    texts are decoded one after the other.

    Args:
        pool: what decodes; each text has caches of its own beside it.
        most: texts at once at most, which bounds the memory of their caches.
    """

    def __init__(self, pool: Pool, most: int = MOST):
        self.pool, self.most = pool, most
        self.costs = copy.deepcopy(pool.costs)  # in a batch the parts of a round cost less than alone
        target = getattr(pool.target.decoder, "runs", None)
        self._shares, self._streams = target is not None, Streams(target)
        self._pools: dict[Stream[Any], Pool] = {}
        self._idle: list[Pool] = []
        self._drafting = 0.0  # for the target's step under way, where that is in another engine

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def full(self) -> bool:
        """Whether no other text can join now."""
        return len(self) >= self.most

    def start(self, work: Callable[[Pool], T]) -> Stream[T]:
        """Let ``work`` begin at the next step, with a pool of its own.

        Raises:
            RuntimeError: the batch is full.
        """
        if self.full:
            raise RuntimeError(f"{self.most} texts are decoded at once at most")
        pool = self._idle.pop() if self._idle else self.pool.twin()
        pool.costs = copy.copy(self.costs)  # its measurements are shared
        stream = Stream(lambda: work(pool))
        self._pools[stream] = pool
        self._streams.add(stream)
        return stream

    def step(self) -> list[Stream[Any]]:
        """Go on until the target has run once for all that wait for it; returns the streams that have ended."""
        ended, begun = list[Stream[Any]](), time.perf_counter() - self._streams.reading
        self.costs.crowd.texts = len(self) if self._shares else 1
        with self.pool.lock:
            verified = False
            while len(self) and not verified:
                verified = self._streams.at_last
                ended += self._streams.step()
        if verified:
            self.costs.crowd.passed(time.perf_counter() - self._streams.reading - begun)
        self._idle += [self._pools.pop(stream) for stream in ended]
        return ended

    def resume(self, answers: Mapping[Stream[Any], Any], seconds: float) -> list[Stream[Any]]:
        """Go on where the target runs in another engine, until all wait for it again; as of
        :meth:`~drafters.models.streams.Streams.resume`."""
        begun, reading, crowd = time.perf_counter(), self._streams.reading, self.costs.crowd
        with self.pool.lock:
            crowd.texts = self._streams.leave_out(answers)
            ended = self._streams.resume(answers, seconds)
        if len(answers) == crowd.texts:  # with others new among them it was no round of so many
            crowd.passed(self._drafting + seconds)
        self._drafting = time.perf_counter() - begun - (self._streams.reading - reading)
        self._idle += [self._pools.pop(stream) for stream in ended]
        return ended

    def feed(self, stream: Stream[Any]) -> Any:
        """What a stream that waits wants of the target."""
        return self._streams.feed(stream)

    def drop(self, stream: Stream[Any]) -> None:
        """End a text where it is."""
        self._streams.drop(stream)
        self._idle.append(self._pools.pop(stream))

    def run(self, works: Iterable[Callable[[Pool], T]]) -> list[T]:
        """Do all of these, each as soon as there is room; what they return, in their order.

        Raises:
            Exception: what one of them raised; the others end where they are.
        """
        waiting, streams = deque(works), list[Stream[T]]()
        try:
            while waiting or len(self):
                while waiting and not self.full:
                    streams.append(self.start(waiting.popleft()))
                for stream in self.step():
                    if stream.error:
                        raise stream.error
        except BaseException:
            self.close()
            raise
        return [cast(T, stream.result) for stream in streams]

    def close(self) -> None:
        """End all texts where they are. Until then those under way hold the pool's lock for this thread."""
        self._streams.close()
        self._idle += self._pools.values()
        self._pools.clear()


def generate_batch(
    pool: Pool,
    prompts: Sequence[str | Sequence[int]],
    policy: str = "normal-hedge",
    params: SamplingParams | None = None,
    seed: int = 0,
    size: int = 8,
) -> list[Generation]:
    """Decode several prompts, ``size`` at once; the next one begins when one has ended. Where one fails all end.

    The other arguments and errors are those of :class:`~multidraft.engine.decoding.Decoding`; ``seed`` is that of each.

    Returns:
        A generation for each prompt, in their order.
    """
    if isinstance(prompts, str):
        raise PromptError("generate_batch takes a list of prompts, not one text; generate decodes one")

    def decode(prompt: str | Sequence[int], twin: Pool) -> Generation:
        return Decoding(twin, prompt, policy, params, seed).run()

    return Batch(pool, size).run(partial(decode, prompt) for prompt in prompts)
