"""Texts that grow, and the answers that are made of them in OpenAI's forms."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from drafters.pool import Pool
from drafters.text import INCOMPLETE, TextStream
from multidraft.engine.output import TokenLogprob, completed
from multidraft.service.jobs import Job
from multidraft.service.workbench import RunJob
from multidraft.serving.openai.errors import ApiError
from storage.records import FINISHED
from storage.speculation import metrics_of

REASONS = {"stopped": "stop", "completed": "length", "context_limit": "length"}
"""Why a text ended, by its status."""


@dataclass
class News:
    """What is new of a text: characters, log-probabilities of tokens, and at last why it ended."""

    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    reason: str | None = None

    def __iadd__(self, later: News) -> News:
        self.text, self.reason = self.text + later.text, later.reason
        self.logprobs += later.logprobs
        return self

    def __bool__(self) -> bool:
        return bool(self.text or self.logprobs or self.reason)


@dataclass
class Growing:
    """One text of an answer, which :meth:`news` follows; a text of the prompt alone has no ``job``.

    Attributes:
        read: decodes its tokens, those of the prompt too, as they are told with their log-probabilities.
        prompt_tokens: how many the prompt has; 0 where another text has the same prompt, which counts once.
        prompt: what of it the answer repeats first.
        echoed: its log-probabilities.
        stops: texts that end it and are not part of the answer, unless complete within ``stop_after`` tokens.
        tokens: how many it has so far, those of the prompt apart.
        offset: characters that ``read`` has given out.
        ended: whether all of it has been told.
    """

    index: int
    job: RunJob | None
    read: TextStream
    prompt_tokens: int
    prompt: str = ""
    echoed: list[TokenLogprob] = field(default_factory=list)
    stops: Sequence[str] = ()
    stop_after: int = 0
    tokens: int = 0
    _rounds: int = -1
    _text: str = ""
    _kept: int = 0
    _out: int = 0
    offset: int = 0
    ended: bool = False

    def leave(self) -> None:
        """Nobody waits for it any more."""
        if self.job and self.job.run.generation.status == "running":
            self.job.cancel()

    def news(self) -> News:
        """What has come since the last time.

        Raises:
            ApiError: it failed, or the server ended it.
        """
        news = News()
        if self._rounds < 0:
            self._rounds, news.text, news.logprobs = 0, self.prompt, [*self.echoed]
        if self.job is None:
            news.reason = "length"
        else:
            self._follow(self.job, news)
        self.ended = news.reason is not None
        return news

    def _follow(self, job: RunJob, news: News) -> None:
        generation = job.run.generation
        status = generation.status  # before the rounds: once it has ended there are no more of them
        rounds = generation.rounds[self._rounds :]
        if status in FINISHED and job.recorded:
            news.reason = REASONS[status]
        elif status == "error":
            raise ApiError(500, f"decoding failed: {generation.error}")
        elif status == "cancelled":
            raise ended_early(job)
        self._rounds += len(rounds)
        told, self.tokens = self.tokens, self.tokens + sum(r.emitted for r in rounds)
        news.logprobs += job.measurement.decoding.logprobs[told : self.tokens]
        pieces = [piece for r in rounds for piece in r.pieces]
        self._text += "".join(pieces)
        self._kept += sum(map(len, pieces[: max(self.stop_after - told, 0)]))
        out = released(self._text, self.stops, self._kept, ended=news.reason is not None)
        news.text += self._text[self._out : out]
        self._out = out


def ended_early(job: Job) -> ApiError:
    """What to say of a job that the server has ended: it had the device for as long as one may, the operator stopped
    it, or the server stops."""
    if job.error:  # asking again would not help
        return ApiError(400, job.error, code="ended_early")
    return ApiError(503, "the server is shutting down", code="overloaded")


def released(text: str, stops: Sequence[str], kept: int = 0, *, ended: bool) -> int:
    """How many characters of a text are part of the answer for sure: none from the first stop text on that is complete
    only beyond the first ``kept``, and while it grows none that may belong to one."""
    if (found := completed(text, stops, kept)) is not None:
        return found
    if ended:
        return len(text)
    begun = (n for stop in stops for n in range(1, min(len(stop), len(text) + 1)) if text.endswith(stop[:n]))
    return len(text) - max(begun, default=0)


class Form:
    """One kind of answer.

    Args:
        pool: what answers.
        logprobs: whether log-probabilities are told.
    """

    whole: str
    """``object`` of an answer,"""
    part: str
    """of a part of a streamed one, and"""
    prefix: str
    """what ids begin with."""

    def __init__(self, pool: Pool, *, logprobs: bool):
        self.tokenizer, self.texts, self.logprobs = pool.tokenizer, pool.token_texts, logprobs
        self._head = {
            "id": self.prefix + secrets.token_hex(12),
            "created": int(time.time()),
            "model": pool.name,
            "system_fingerprint": f"{pool.name}-{pool.card_hash[:12]}",
        }

    def answer(self, growing: Sequence[Growing], news: Sequence[News]) -> dict[str, Any]:
        """The whole answer; ``news`` is all of each text."""
        choices = [self.choice(g, n) for g, n in zip(growing, news, strict=True)]
        return {**self._head, "object": self.whole, "choices": choices, **self.end(growing)}

    def chunk(self, choices: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """A part of a streamed answer."""
        return {**self._head, "object": self.part, "choices": list(choices), **more}

    def end(self, growing: Sequence[Growing]) -> dict[str, Any]:
        """Usage and metrics; these of a single text, as vLLM does it."""
        job = growing[0].job if len(growing) == 1 else None
        metrics = metrics_of(job.run) if job else None
        return {"usage": usage(growing), "metrics": metrics}

    def _bytes(self, token: int) -> list[int]:
        """The UTF-8 bytes of a token, which may be part of a character: those of several make one then."""
        if INCOMPLETE in (text := self.texts[token]):
            name, known = str(self.tokenizer.convert_ids_to_tokens(token)), bytes_of_characters()
            if found := re.fullmatch("<0x([0-9A-F]{2})>", name):  # byte fallback of SentencePiece
                return [int(found[1], 16)]
            if all(character in known for character in name):
                return [known[character] for character in name]
        return list(text.encode())

    def first(self, growing: Growing) -> dict[str, Any] | None:
        """The choice of the first part of a streamed text, if there is one before its tokens."""
        return None

    def choice(self, growing: Growing, news: News) -> dict[str, Any]:
        """A whole text."""
        raise NotImplementedError

    def delta(self, growing: Growing, news: News) -> dict[str, Any]:
        """What is new of a text."""
        raise NotImplementedError


class CompletionForm(Form):
    """Answers of ``/v1/completions``."""

    whole = part = "text_completion"
    prefix = "cmpl-"

    def choice(self, growing: Growing, news: News) -> dict[str, Any]:
        return self.delta(growing, news)

    def delta(self, growing: Growing, news: News) -> dict[str, Any]:
        logprobs = self._logprobs(growing, news.logprobs) if self.logprobs else None
        return {"index": growing.index, "text": news.text, "logprobs": logprobs, "finish_reason": news.reason}

    def _logprobs(self, growing: Growing, known: Sequence[TokenLogprob]) -> dict[str, list[Any]]:
        told: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for k in known:
            top = dict[str, float]()
            for token, value in (*k.top, *(() if k.logprob is None else ((k.token, k.logprob),))):
                top.setdefault(self._name(token), value)
            values = self._name(k.token), k.logprob, top or None, growing.offset
            for name, value in zip(told, values, strict=True):
                told[name].append(value)
            growing.offset += len(growing.read.extend([k.token]))
        return told

    def _name(self, token: int) -> str:
        """The text of a token; of a part of a character its bytes, as OpenAI's API has it, since those are told apart
        by nothing else."""
        text = self.texts[token]
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self._bytes(token)) if INCOMPLETE in text else text


class ChatForm(Form):
    """Answers of ``/v1/chat/completions``."""

    whole, part = "chat.completion", "chat.completion.chunk"
    prefix = "chatcmpl-"

    def first(self, growing: Growing) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        return {"index": growing.index, "delta": delta, "logprobs": None, "finish_reason": None}

    def choice(self, growing: Growing, news: News) -> dict[str, Any]:
        message = {"role": "assistant", "content": news.text, "refusal": None}
        return {"index": growing.index, "message": message, **self._rest(news)}

    def delta(self, growing: Growing, news: News) -> dict[str, Any]:
        return {"index": growing.index, "delta": {"content": news.text} if news.text else {}, **self._rest(news)}

    def _rest(self, news: News) -> dict[str, Any]:
        known = [
            {**self._named(k.token, k.logprob), "top_logprobs": [self._named(*top) for top in k.top]}
            for k in news.logprobs
        ]
        logprobs = {"content": known, "refusal": None} if self.logprobs else None
        return {"logprobs": logprobs, "finish_reason": news.reason}

    def _named(self, token: int, logprob: float | None) -> dict[str, Any]:
        return {"token": self.texts[token], "logprob": logprob, "bytes": self._bytes(token)}


@cache
def bytes_of_characters() -> dict[str, int]:
    """The bytes that the characters in the names of byte-level tokens stand for (GPT-2)."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {character: byte for byte, character in bytes_to_unicode().items()}


def usage(growing: Sequence[Growing]) -> dict[str, int]:
    """Tokens of an answer so far."""
    prompt, completion = sum(g.prompt_tokens for g in growing), sum(g.tokens for g in growing)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
