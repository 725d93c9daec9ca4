"""Decodings of texts that another engine writes: it asks for drafts, verifies them and says what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from drafters.draft import Draft
from drafters.sampling import SamplingParams
from drafters.text import TextStream
from multidraft.engine.decoding import Decoding
from multidraft.engine.verify import Verdict
from storage.records import Generation, Round

if TYPE_CHECKING:
    from drafters.pool import Pool

UNSEEN = "without a stop token, so at its length limit, by its client, or preempted and never resumed"
"""How a text ended of which the engine says no more."""


class Following(Decoding):
    """A text that another engine writes, on a pool whose target is a :class:`~drafters.models.remote.RemoteTarget`.

    Drafts are greedy whatever the request's temperature: engines tell proposers of none, and take drafts for
    point masses.

    Args:
        pool: whose ``stop_ids`` are empty: the engine knows when a text ends.
        text: token ids of prompt and output so far.
        policy, params, seed: as of :class:`~multidraft.engine.decoding.Decoding`.
        earlier: what was recorded of the text so far, where it is taken up again, with a policy that begins anew.
        unseen: how many tokens at the end of ``text`` the engine has written since, without a draft: the first one
            after the prompt, and those of steps for which it asked for none.
        seconds: that those steps took.
    """

    def __init__(
        self,
        pool: Pool,
        text: Sequence[int],
        policy: str,
        params: SamplingParams,
        seed: int,
        earlier: Generation | None = None,
        unseen: int = 1,
        seconds: float = 0.0,
    ):
        super().__init__(pool, text[:-1], policy, params, seed)
        before, self._unseen = text[: len(text) - unseen], tuple(text[len(text) - unseen :])
        self._text, self._each = TextStream(pool.tokenizer, before), seconds / unseen
        self._seconds = earlier.prefill_seconds if earlier else 0.0
        self.generation = earlier or self.generation

    def so_far(self, ends: frozenset[int]) -> Generation:
        """A copy of what there is, as of a text that has ended, though it may go on yet. Of the last round engines drop
        what follows a stop token, one of ``ends``."""
        generation = self.generation
        *rounds, last = generation.rounds
        end = next((1 + at for at, token in enumerate(last.tokens) if token in ends), None)
        if generation.status != "running" or end is None:
            copied = replace(generation, rounds=[*rounds, last], token_ids=[*generation.token_ids])
            if copied.status == "running":
                copied.status, copied.error = "completed", UNSEEN
            return copied
        cut, pieces = len(last.tokens) - end, last.pieces[:end]
        last = replace(
            last,
            tokens=last.tokens[:end],
            accepted=min(last.accepted, end),
            own=None if cut else last.own,
            text="".join(pieces),
            pieces=pieces,
        )
        tokens = generation.token_ids[: len(generation.token_ids) - cut]
        text = "".join(one.text for one in [*rounds, last])
        return replace(generation, rounds=[*rounds, last], token_ids=tokens, text=text, status="stopped")

    def _round(self) -> Round:
        if not self._unseen:
            return super()._round()
        (*before, last), self._unseen = self._unseen, ()
        generation = self.generation
        generation.prefill_seconds += self._seconds
        for token in before:
            generation.rounds.append(round := self._undrafted(token))
            generation.token_ids.append(token)
            generation.text += round.text
        self.context.append(last)
        self._evaluated = len(self.context)
        self.pool.costs.unread.emitted(1, ())
        return self._undrafted(last)

    def _undrafted(self, token: int) -> Round:
        pieces = tuple(self._text.add([token]))
        return Round(
            index=len(self.generation.rounds),
            arm=None,
            drafter=None,
            drafted=(),
            accepted=0,
            tokens=(token,),
            own=token,
            text="".join(pieces),
            pieces=pieces,
            verify_seconds=self._each,
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
