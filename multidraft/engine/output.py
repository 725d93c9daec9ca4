"""What is asked of an output beyond its sampling: where it ends early, and the probabilities of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from drafters.arguments import texts_of, whole
from drafters.errors import UserError, quoted
from drafters.text import TextStream
from multidraft.engine.lossless import teacher_forced

if TYPE_CHECKING:
    from drafters.pool import Pool


@dataclass(frozen=True)
class Output:
    """What is asked of an output.

    Attributes:
        stop: texts that end it: the first token that completes one of them is the last. Any collection of texts is
            taken, and kept as a tuple.
        ignore_end: pass over the pool's stop tokens.
        logprobs: how many alternatives to note for each token, beside its own log-probability, in ``logprobs`` of the
            :class:`~multidraft.engine.decoding.Decoding` (a generation does not hold them); ``None`` notes nothing.
        anew: whether it is a text of its own, as an answer in chat form, also after a prompt of token ids: the space of
            its first word is dropped.
        stop_after: texts of ``stop`` that are complete within so many tokens are passed over, as with vLLM's
            ``min_tokens``. Unlike there, the target may end the output before: end tokens keep their probabilities.
    """

    stop: tuple[str, ...] = ()
    ignore_end: bool = False
    logprobs: int | None = None
    anew: bool = False
    stop_after: int = 0

    def __post_init__(self) -> None:
        if (stop := texts_of(self.stop)) is None:
            raise UserError(f"stop must be a tuple of texts, such as ('\\n\\n',), got {quoted(self.stop)}")
        if not all(stop):
            raise UserError("a stop text is empty; leave it out")
        object.__setattr__(self, "stop", stop)
        if (after := whole(self.stop_after)) is None or after < 0:
            raise UserError(f"stop_after must be a whole number from 0 on, got {quoted(self.stop_after)}")
        if self.logprobs is not None and ((top := whole(self.logprobs)) is None or top < 0):
            raise UserError(f"logprobs must be a whole number from 0 on, or None, got {quoted(self.logprobs)}")


@dataclass(frozen=True)
class TokenLogprob:
    """How probable the target finds a token after those before it.

    Attributes:
        logprob: its log-probability, at temperature 1 and without truncation; of the first token of all ``None``.
        top: the most probable tokens there with theirs, the first one first; the token itself need not be among them.
    """

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


def logprobs_of(logits: torch.Tensor, tokens: Sequence[int], top: int) -> list[TokenLogprob]:
    """The log-probabilities of ``tokens``, one for each row of the target's ``logits`` ``(T, V)``."""
    rows = torch.log_softmax(logits.float(), dim=-1)
    own = rows[torch.arange(len(tokens)), list(tokens)].tolist()
    best = rows.topk(min(top, rows.shape[-1]), dim=-1)
    pairs = [tuple(zip(*row)) for row in zip(best.indices.tolist(), best.values.tolist())]
    return [TokenLogprob(*each) for each in zip(tokens, own, pairs)]


def logprobs_of_prompt(pool: Pool, ids: Sequence[int], top: int) -> Iterator[list[TokenLogprob]]:
    """Let the target read a text that fits its window; yields what is known of its tokens chunk by chunk."""
    yield [TokenLogprob(ids[0], None)]
    for _, tokens, logits in teacher_forced(pool, ids[:1], ids[1:]):
        yield logprobs_of(logits, tokens, top)


class StopTexts:
    """Notices the token that completes one of ``texts`` in an output, which ``stream`` decodes, once ``after`` tokens
    have come."""

    def __init__(self, texts: Sequence[str], stream: TextStream, after: int = 0):
        self._texts, self._stream, self._after, self._tail = texts, stream, after, ""
        self._kept = max(map(len, texts), default=1) - 1

    def completed_by(self, token: int) -> bool:
        """Whether ``token``, the next one of the output, completes a text."""
        if not self._texts:
            return False
        known = len(self._tail)
        self._tail += self._stream.extend([token])
        self._after -= 1
        found = self._after < 0 and completed(self._tail, self._texts, known) is not None
        self._tail = self._tail[len(self._tail) - self._kept :]
        return found


def completed(text: str, stops: Sequence[str], known: int) -> int | None:
    """Where the first of the ``stops`` begins that are complete only after the first ``known`` characters of a text."""
    places = (text.find(stop, max(known - len(stop) + 1, 0)) for stop in stops)
    return min((at for at in places if at >= 0), default=None)
