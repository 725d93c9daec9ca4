"""Decodings of texts that another engine writes: it asks for drafts, verifies them and says what it wrote."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from drafters.draft import Draft
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from drafters.text import TextStream
from multidraft.engine.decoding import Decoding
from multidraft.engine.verify import Verdict
from storage.records import Round


class Following(Decoding):
    """A text that another engine writes, on a pool whose target is a :class:`~drafters.models.remote.RemoteTarget`.

    Drafts are greedy whatever the request's temperature: engines tell proposers of none, and take drafts for
    point masses.

    Args:
        pool: whose ``stop_ids`` are empty: the engine knows when a text ends.
        prompt: token ids.
        first: the token that the engine wrote when it had read the prompt; there was no draft for it.
        policy, params, seed: as of :class:`~multidraft.engine.decoding.Decoding`.
    """

    def __init__(self, pool: Pool, prompt: Sequence[int], first: int, policy: str, params: SamplingParams, seed: int):
        super().__init__(pool, prompt, policy, params, seed)
        self._first = first

    def _round(self, text: TextStream) -> Round:
        if self.generation.rounds:
            return super()._round(text)
        self.context.append(self._first)
        self._evaluated = len(self.context)
        self.pool.costs.unread.emitted(1, ())
        pieces = tuple(text.add([self._first]))
        return Round(
            index=0,
            arm=None,
            drafter=None,
            drafted=(),
            accepted=0,
            tokens=(self._first,),
            own=self._first,
            text="".join(pieces),
            pieces=pieces,
            draft_length=0,
            nodes=0,
            depth=0,
            together=False,
            reward=None,
            block_divergence=None,
            probabilities=None,
            draft_seconds=0.0,
            verify_seconds=0.0,
            policy_seconds=0.0,
            evaluate_seconds=0.0,
            evaluated=0.0,
        )

    def _verify(self, draft: Draft) -> tuple[Draft, Verdict, torch.Tensor | None]:
        """What the engine made of a draft: accepted tokens and one of its own.

        An own token that is what was drafted there shows that this was not scored: engines shorten drafts, and drop
        those of requests that they preempt.
        """
        tokens: Sequence[int] = self.pool.target.score(draft)  # type: ignore[assignment]
        accepted = len(tokens) - 1
        scored = draft.first(accepted) if draft.tokens[accepted : accepted + 1] == (tokens[-1],) else draft
        return scored, Verdict(tuple(range(accepted)), tokens[-1]), None
