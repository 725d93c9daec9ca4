"""Drafters and policy of a pool in vLLM: a class that ``vllm serve`` takes as ``custom_class`` proposer.

vLLM runs the target, verifies and samples; :class:`MultiDraft` is asked after each of its steps for the next drafts.
Each request is a :class:`~multidraft.engine.following.Following`, a decoding like any other of the engine, in a batch
whose target runs elsewhere. So policies, drafters and records are those of the engine, and what drafters compute for
all requests runs together.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
import torch

from drafters.caches import SETTING
from drafters.errors import UserError, error_message
from drafters.models import onnx_session
from drafters.models.streams import Stream
from drafters.pool import Pool
from drafters.sampling import MAX_DRAFT_LENGTH, MAX_NEW_TOKENS, SamplingParams
from multidraft.engine.arguments import policy_for
from multidraft.engine.batch import Batch, Text
from multidraft.engine.following import Following
from multidraft.policies.custom import import_policies
from multidraft.service.settings import read_settings
from multidraft.serving.vllm_start import announced, conditions, load_drafters, mend_sampling
from storage.records import Generation, Round
from storage.run import Origin, Run
from storage.store import Kept, Store

T = TypeVar("T")

log = logging.getLogger("vllm.multidraft")
"""Below vLLM's own, whose messages are shown."""

POLICY = "MULTIDRAFT_POLICY"
"""The environment variable that names the policy."""

MOST = 64
"""Requests that drafts are made for at once at most; others are decoded without."""

ROOM = 1024
"""Tokens that caches of drafters have room for beyond a text's own; it grows by as many."""

KNOWN = 128
"""Requests that are known although they are not in vLLM's batch, at most: those that it preempts come back."""

STOPPED_AFTER, ENDED_AFTER = 1.0, 10.0
"""Seconds without news after which a request is recorded: where its last token was a stop token, and otherwise. One
that comes back after all, since it was preempted or waited for the long prompt of another, is recorded anew in place of
that."""

NO_ROOM = f"decoded without drafts from here on: no room in its drafters' caches ({SETTING})"
"""What is said of a run of which the rest is not known."""


@dataclass(eq=False)
class Request:
    """A request of vLLM, known by its tokens.

    Attributes:
        row: where it stood in the batch last.
        key: of the tokens that it had then (:func:`_key`).
        seen: when, by ``time.monotonic``.
        draft: the tokens proposed for its next step.
        stream: what makes its drafts; ``None`` where there is no room for it, and after it failed.
        paused: whether it has made room for others, and goes on if it comes back.
        room: tokens that its drafters' caches have room for.
        decoding: what the stream does, once it has begun, or did.
        learnt: rounds of it that drafters and policies have learnt from.
        recorded: rounds of it that were handed to the history, and
        kept: as what.
    """

    row: int
    seen: float
    key: bytes = b""
    draft: Sequence[int] = ()
    stream: Stream[Generation] | None = None
    paused: bool = False
    room: int = 0
    decoding: Following | None = None
    learnt: int = 0
    recorded: int = 0
    kept: Kept | None = None

    @property
    def rounds(self) -> Sequence[Round]:
        return self.decoding.generation.rounds if self.decoding else ()


class MultiDraft:
    """The proposer of ``{"method": "custom_class", "model": "multidraft.serving.vllm.MultiDraft", …}``.

    Args:
        vllm_config: vLLM's configuration. ``num_speculative_tokens`` is the longest draft.

    Raises:
        UserError: a pool or a policy that cannot be used with this target.
    """

    def __init__(self, vllm_config: Any):
        parallel, on_cpu = vllm_config.parallel_config, vllm_config.device_config.device_type == "cpu"
        mended = on_cpu and mend_sampling()
        # All ranks of tensor parallelism are asked, and the first is listened to.
        self.listened_to = parallel.rank % parallel.tensor_parallel_size == 0
        if not self.listened_to:
            return
        import_policies()
        settings, model = read_settings(), vllm_config.model_config
        length = int(vllm_config.speculative_config.num_speculative_tokens)
        if length > MAX_DRAFT_LENGTH:
            raise UserError(f"num_speculative_tokens must be at most {MAX_DRAFT_LENGTH}, got {length}")
        self.policy = os.environ.get(POLICY, "").strip() or "rate-hedge"
        # vLLM binds its threads to cores and lets them spin: more threads of ours would wait for theirs, in one core.
        onnx_session.threads = 1
        with torch.inference_mode(False):
            self.pool = pool = load_drafters(settings, model, "cpu" if on_cpu else None)
        policy = policy_for(pool, self.policy)
        self.params = SamplingParams(MAX_NEW_TOKENS, draft_length=length)
        self.ends, pool.stop_ids = pool.stop_ids, frozenset()
        self._made_on = partial(conditions, pool, settings.pool, model)
        self.store = Store(settings.db) if os.environ.get("MULTIDRAFT_DB", "").strip() else None
        self.batch = Batch(pool, MOST)
        self.absent: dict[bytes, list[Request]] = {}
        """Requests by their tokens (:func:`_key`); during a step those that are not in it."""
        self._lock, self._left, self._waited = threading.Lock(), time.perf_counter(), 0.0
        self._count, self._unasked = 0, False
        if self.store:
            atexit.register(self.settle, float("inf"))
            threading.Thread(target=self._watch, name="multidraft-ended", daemon=True).start()
        for line in announced(pool, self.policy, policy, length, self.store.path if self.store else None, mended):
            log.info("%s", line)

    def load_model(self, *_: Any, **__: Any) -> None:
        """vLLM has loaded the target: the drafters were loaded before."""
        if self.listened_to:
            self.conditions = self._made_on()

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: np.ndarray,
        token_ids_cpu: np.ndarray,
        slot_mappings: object = None,
    ) -> list[list[int]]:
        """The next drafts.

        Args:
            sampled_token_ids: by row of the batch, the tokens that its last step wrote: accepted ones and one of the
                target's own, none where a prompt is still being read.
            num_tokens_no_spec: how many tokens each row has by now, those included.
            token_ids_cpu: the tokens ``(rows, longest)``.
        """
        drafts: list[list[int]] = [[] for _ in sampled_token_ids]
        if not self.listened_to:
            return drafts
        with self._lock, torch.inference_mode(False):  # vLLM calls in inference mode, which would be the streams' too
            self._waited, now = time.perf_counter() - self._left, time.monotonic()
            written = {row: list(map(int, tokens)) for row, tokens in enumerate(sampled_token_ids) if len(tokens)}
            texts = {row: token_ids_cpu[row, : num_tokens_no_spec[row]] for row in written}
            known = {row: self._known(row, texts[row][: -len(tokens)], tokens) for row, tokens in written.items()}
            self._look_after(now)
            for row, request in known.items():
                if request and request.stream is not None and not self._grown(request, len(texts[row])):
                    self._give_up(request)
            answers = {
                request.stream: written[row] for row, request in known.items() if request and request.stream is not None
            }
            present = {row: self._present(request, texts[row]) for row, request in known.items()}
            for stream in self.batch.resume(answers, self._waited):
                self._ended(next(request for request in present.values() if request.stream is stream))
            for row, request in present.items():
                if request.stream is not None:  # streams that have ended are falsy
                    drafts[row] = list(self.batch.feed(request.stream))
                request.row, request.seen, request.key, request.draft = row, now, _key(texts[row]), drafts[row]
                self.absent.setdefault(request.key, []).append(request)
            # Where a draft might not fit into the context window, vLLM asks for none, for no row.
            room = self.pool.target.window - self.params.draft_length
            self._unasked = any(len(text) + len(drafts[row]) > room for row, text in texts.items())
            self._left = time.perf_counter()
        return drafts

    def settle(self, now: float) -> None:
        """Record the requests that have ended by ``now``, by ``time.monotonic``."""
        with self._lock:
            for request in self._quiet(now):
                self._record(request)

    def _known(self, row: int, before: np.ndarray, written: list[int]) -> Request | None:
        """The request whose tokens were ``before`` when it was last asked for a draft, of which ``written`` but the
        last are accepted tokens. Of several with the same tokens, the last seen (others may have ended), by row."""
        accepted = written[:-1]
        same = self.absent.get(_key(before), ())
        alike = [one for one in same if one.stream is None or list(one.draft[: len(accepted)]) == accepted]
        if not alike:
            return self._left_behind(before) if self._unasked else None
        found = max(alike, key=lambda request: (request.seen, request.row == row))
        self._take(found)
        return found

    def _left_behind(self, before: np.ndarray) -> Request | None:
        """The request that has written on in steps in which vLLM asked for no drafts; it begins anew from there."""
        for request in self._waiting()[::-1]:
            known = request.decoding.context if request.decoding else before
            if len(known) < len(before) and np.array_equal(before[: len(known)], known):
                self._take(request)
                self._drop(request)
                return request
        return None

    def _present(self, request: Request | None, text: np.ndarray) -> Request:
        """A request of this step, with a stream if it is to have one: it is new here, or it made room for others while
        it was preempted, and goes on."""
        if request and not request.paused:
            return request
        request = request or Request(0, 0.0)
        self._count += 1
        request.paused, request.room = False, min(len(text) + ROOM, self.pool.target.window)
        begins = Text(partial(self._decode, request, text.tolist(), self._count), request.room)
        request.stream = self._others_make_room(lambda: self.batch.start(begins))
        if request.stream is None:
            self._give_up(request)
        return request

    def _grown(self, request: Request, tokens: int) -> bool:
        """Whether there is room for the next draft of a request that has so many tokens."""
        stream = request.stream
        assert stream is not None
        needed, window = tokens + self.params.draft_length, self.pool.target.window
        if min(needed, window) <= request.room:
            return True
        request.room = min(needed + ROOM, window)
        return self._others_make_room(lambda: self.batch.grow(stream, request.room) or None) is not None

    def _others_make_room(self, ask: Callable[[], T | None]) -> T | None:
        """What ``ask`` returns, once there is room for it; those longest without news make room."""
        others = [other for other in self._waiting() if other.stream is not None]
        while (found := ask()) is None and others:
            self._drop(others.pop(0))
        return found

    def _give_up(self, request: Request) -> None:
        """Decode a request without drafts from here on."""
        if request.decoding and request.decoding.generation.status == "running":
            request.decoding.generation.status, request.decoding.generation.error = "cancelled", NO_ROOM
            request.recorded = 0
        self._drop(request)

    def _decode(self, request: Request, text: list[int], seed: int, pool: Pool) -> Generation:
        earlier = request.decoding.generation if request.decoding else None
        unseen = len(text) - len(request.decoding.context) if request.decoding else 1
        took = self._waited if unseen > 1 else 0.0
        request.decoding = Following(pool, text, self.policy, self.params, seed, earlier, unseen, took)
        return request.decoding.run()

    def _ended(self, request: Request) -> None:
        """Its stream has ended: it failed, or its context window is full."""
        if request.stream is not None and (error := request.stream.error):
            log.error("multidraft: a request goes on without drafts: %s", error_message(error), exc_info=error)
        request.stream = None

    def _waiting(self) -> list[Request]:
        """Requests that are not in the step under way, those longest without news first."""
        return sorted((one for alike in self.absent.values() for one in alike), key=lambda request: request.seen)

    def _quiet(self, now: float) -> list[Request]:
        """Those of them that have ended by now, as it seems."""
        return [
            one for one in self._waiting() if now - one.seen > (STOPPED_AFTER if self._stopped(one) else ENDED_AFTER)
        ]

    def _look_after(self, now: float) -> None:
        """Record what has ended and let others learn from it; forget the oldest beyond so many."""
        for request in self._quiet(now):
            self._record(request)
            self._learn(request)
        for request in self._waiting()[:-KNOWN]:
            self._drop(request)
            self._take(request)

    def _drop(self, request: Request) -> None:
        """Let a request make room for others; one under way goes on if it comes back."""
        generation = request.decoding.generation if request.decoding else None
        request.paused = generation is not None and generation.status == "running"
        self._record(request)
        self._learn(request)
        if request.stream is not None:
            self.batch.drop(request.stream)
            request.stream = None
        if generation and request.paused:  # its stream took it for cancelled
            generation.status = "running"

    def _learn(self, request: Request) -> None:
        if request.decoding and request.stream is not None and len(request.rounds) > request.learnt:
            request.learnt = len(request.rounds)
            request.decoding.remember()

    def _take(self, request: Request) -> None:
        """Take a request out of those that are not in the step under way."""
        (alike := self.absent[request.key]).remove(request)
        if not alike:
            del self.absent[request.key]

    def _stopped(self, request: Request) -> bool:
        return bool(request.rounds) and not self.ends.isdisjoint(request.rounds[-1].tokens)

    def _record(self, request: Request) -> None:
        """Hand its run to the history, in place of what was handed there before, unless nothing is new."""
        if not request.decoding or len(request.rounds) <= request.recorded:
            return
        request.recorded = len(request.rounds)
        if self.store:
            run = Run(
                request.decoding.so_far(self.ends), self.params, request.decoding.seed, self.conditions, Origin("vllm")
            )
            request.kept = self.store.add(run, anew=request.kept)

    def _watch(self) -> None:
        """Record requests that end when no other keeps vLLM busy."""
        while True:
            time.sleep(STOPPED_AFTER)
            self.settle(time.monotonic())


def _key(tokens: np.ndarray) -> bytes:
    """What a request is known by; short, where its tokens may be very many."""
    return blake2b(tokens.tobytes(), digest_size=16).digest()
