"""What clients ask for, read and checked: the fields of OpenAI's requests, and those that choose policy and draft."""

from __future__ import annotations

import difflib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from drafters.errors import PromptError, fault_message, quoted
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from drafters.text import Turn
from multidraft.engine.arguments import check_text
from multidraft.engine.output import Output
from multidraft.policies.titles import DEFAULT_POLICY
from multidraft.serving.openai.errors import ApiError
from storage.records import PLAIN

MOST_TEXTS = 64
"""Texts of one request."""

MOST_LOGPROBS = 20
"""Alternatives of a token."""

MOST_STOPS, LONGEST_STOP = 32, 1000
"""Texts that may end an answer."""

SEEDS = 2**63
"""Seeds of the engine; OpenAI's may be negative."""

MOST_DIGITS = 50
"""Of a whole number that are read. No field takes one of so many, Python reads 4,300, and a message may repeat it."""

IGNORED = {
    "metadata",
    "parallel_tool_calls",
    "priority",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "request_id",
    "safety_identifier",
    "service_tier",
    "user",
    "verbosity",
}
"""Fields that do not say what the answer is to be, or are hints for models that reason."""

ONLY: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (True,),
    "continue_final_message": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "modalities": (["text"],),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "use_beam_search": (False,),
}
"""Fields whose other values would change the answer in ways that are not offered here."""

R = TypeVar("R", bound="Asked")

# Lists are read up to the first item that is wrong: a body may hold millions.
Texts = Annotated[list[str], Field(fail_fast=True)]
TokenIds = Annotated[list[int], Field(fail_fast=True)]

Prompt = tuple[str | list[int], tuple[Turn, ...]]
"""A prompt as :class:`~multidraft.bench.measure.Request` takes it: text or token ids, and the turns before it."""


class StreamOptions(BaseModel):
    """How an answer is streamed.

    Attributes:
        include_usage: whether the last chunk tells usage and metrics.
        continuous_usage_stats: whether all others tell the usage so far.
        include_obfuscation: OpenAI's padding against listeners, which is not added here.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


class Asked(BaseModel):
    """What both kinds of requests have in common.

    Attributes:
        model: which pool the client means; the one that is loaded answers in any case, and the answer names it.
        policy: a policy spec.
        draft_length: most tokens of a draft; ``None`` takes the pool's, 0 decodes without drafters.
        ignore_eos: pass over the target's own ends; only with it ``min_tokens`` may be above 0.
        min_tokens: texts of ``stop`` that are complete within so many tokens are passed over.
        store: whether later queries may profit from the answer: drafters and policies learn from it.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    model: str = ""
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int | None = None
    seed: int | None = Field(None, ge=-SEEDS, lt=SEEDS)
    n: int = Field(1, ge=1, le=MOST_TEXTS)
    best_of: int | None = None
    stop: str | Texts = []
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    policy: str = DEFAULT_POLICY
    draft_length: int | None = None
    ignore_eos: bool = False
    min_tokens: int = Field(0, ge=0)
    store: bool = True

    @model_validator(mode="before")
    @classmethod
    def _known(cls, fields: Any) -> Any:
        """Without fields that are null, say nothing about the answer, or ask for what is done anyway."""
        if not isinstance(fields, Mapping):
            raise ApiError(400, "the body must be a JSON object")
        given = {name: value for name, value in fields.items() if value is not None and name not in IGNORED}
        for name in given.keys() & ONLY.keys():
            if (value := given.pop(name)) not in ONLY[name]:
                usual = " or ".join(map(json.dumps, ONLY[name]))
                raise ApiError(400, f"{name} {quoted(value)} is not supported: leave it out, or give {usual}", name)
        return given

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def seeds(self) -> list[int]:
        """Of the ``n`` texts of a prompt: ``seed`` and those after it, by default at random."""
        first = secrets.randbits(48) if self.seed is None else self.seed
        return [(first + number) % SEEDS for number in range(self.n)]

    @property
    def most_name(self) -> str:
        """The field that says how many tokens a text may have."""
        return "max_tokens"

    def most(self, pool: Pool, limit: int | None) -> int:
        """Tokens of a text at most: what the client says, by default as many as are usual, there is room for, and the
        server's ``limit`` allows."""
        most: int | None = getattr(self, self.most_name)
        if most is not None and self.most_name in self.model_fields_set:
            return most
        return min(most or pool.target.window, limit or pool.target.window, pool.target.window)

    @property
    def spec(self) -> str:
        """The policy's, without drafters where drafts have no length."""
        return PLAIN if self.draft_length == 0 else self.policy

    @property
    def texts(self) -> int:
        """How many texts are asked for."""
        return self.n

    def prompts(self, pool: Pool) -> list[Prompt]:
        """What the texts are to follow."""
        raise NotImplementedError

    def output(self, logprobs: int | None) -> Output:
        """What the engine is asked for beside the sampling."""
        return Output(self.stops, self.ignore_eos, logprobs, stop_after=self.min_tokens)

    def params(self, pool: Pool, most: int) -> SamplingParams:
        """Parameters of the sampling, of at most ``most`` tokens."""
        length = self.draft_length or pool.draft_length
        try:
            return SamplingParams(most, self.temperature, self.top_p, max(self.top_k, 0), length)
        except ValueError as error:
            name, space, rest = str(error).partition(" ")
            name = self.most_name if name == "max_new_tokens" else name
            raise ApiError(400, f"{name}{space}{rest}", name) from None

    def check(self) -> None:
        """Raise :class:`ApiError` for fields that cannot be granted together."""
        if "stream_options" in self.model_fields_set and not self.stream:
            raise ApiError(400, "stream_options is only allowed when stream is true", "stream_options")
        if self.best_of not in (None, self.n):
            raise ApiError(400, f"best_of must be n ({self.n}) here, got {self.best_of}", "best_of")
        if self.min_tokens > 0 and not self.ignore_eos:
            raise ApiError(400, "min_tokens is only offered together with ignore_eos", "min_tokens")
        if len(self.stops) > MOST_STOPS:
            raise ApiError(400, f"stop may have at most {MOST_STOPS} texts, got {len(self.stops)}", "stop")
        if self.draft_length is not None and self.draft_length < 0:
            said = f"draft_length must be at least 1, or 0 for no drafts, got {self.draft_length}"
            raise ApiError(400, said, "draft_length")
        if self.top_k < -1:
            raise ApiError(400, f"top_k must be at least 1, or 0 or -1 for all tokens, got {self.top_k}", "top_k")
        if (longest := max(map(len, self.stops), default=0)) > LONGEST_STOP:
            raise ApiError(400, f"a text of stop may have {LONGEST_STOP:,} characters, got {longest:,}", "stop")
        if not all(self.stops):
            raise ApiError(400, "stop has an empty text; leave it out", "stop")


class CompletionAsked(Asked):
    """The body of ``/v1/completions``."""

    prompt: str | Texts | TokenIds | Annotated[list[TokenIds], Field(fail_fast=True)]
    max_tokens: int | None = 16
    logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    echo: bool = False

    @property
    def texts(self) -> int:
        return len(self._given) * self.n

    @property
    def _given(self) -> Sequence[Any]:
        """The prompts one by one."""
        single = isinstance(self.prompt, str) or (self.prompt and isinstance(self.prompt[0], int))
        return [self.prompt] if single else self.prompt

    def prompts(self, pool: Pool) -> list[Prompt]:
        """The prompts, texts as they stand; token ids where the target has a chat form, which is not theirs."""
        if not self._given:
            raise PromptError("the prompt is empty; send at least one text or one token id")
        return [(self._as_it_stands(pool, prompt), ()) for prompt in self._given]

    @staticmethod
    def _as_it_stands(pool: Pool, prompt: Any) -> str | list[int]:
        if not isinstance(prompt, str) or not pool.tokenizer.chat_template:
            return prompt
        check_text(prompt)
        return pool.encode_text(prompt)

    def check(self) -> None:
        super().check()
        if self.max_tokens == 0 and not self.echo:
            raise ApiError(400, "max_tokens can only be 0 with echo", "max_tokens")


class Part(BaseModel):
    """A part of a message."""

    model_config = ConfigDict(strict=True)
    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A message of a conversation; other fields, such as ``name``, are passed over."""

    model_config = ConfigDict(strict=True)
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[Part], Field(fail_fast=True)]

    @property
    def text(self) -> str:
        """What it says."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatAsked(Asked):
    """The body of ``/v1/chat/completions``."""

    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MOST_LOGPROBS)

    @property
    def most_name(self) -> str:
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    def prompts(self, pool: Pool) -> list[Prompt]:
        """The conversation as the one prompt there is.

        A pool that answers single prompts takes instructions and questions as one, with blank lines in between.
        """
        roles = ["system" if m.role == "developer" else m.role for m in self.messages]
        texts = [m.text for m in self.messages]
        if roles[-1] != "user":
            raise ApiError(400, f"the last message must be the user's, got one of role {roles[-1]!r}", "messages")
        if not pool.conversational and "assistant" not in roles:
            return [("\n\n".join(texts), ())]
        if roles == (["user", "assistant"] * len(roles))[: len(roles)]:
            return [(texts[-1], tuple(zip(texts[:-1:2], texts[1:-1:2])))]
        return [(pool.encode_messages([{"role": r, "content": t} for r, t in zip(roles, texts)]), ())]

    def output(self, logprobs: int | None) -> Output:
        return replace(super().output(logprobs), anew=True)

    def check(self) -> None:
        super().check()
        if getattr(self, self.most_name) == 0:
            raise ApiError(400, f"{self.most_name} must be at least 1, got 0", self.most_name)
        if self.top_logprobs and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs to be true", "top_logprobs")


def read(kind: type[R], body: bytes) -> R:
    """The request in a body.

    Raises:
        ApiError: it is no JSON, or a field is missing, unknown, or of the wrong kind; the error names it.
    """
    try:
        fields = json.loads(body, parse_int=lambda digits: int(digits[:MOST_DIGITS]))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not valid JSON: {error}") from None
    try:
        asked = kind.model_validate(fields)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        if path := next((fault["loc"] for fault in found if fault["type"] == "extra_forbidden"), None):
            unknown = ".".join(map(str, path))
            known = [*kind.model_fields, *(f"stream_options.{name}" for name in StreamOptions.model_fields)]
            meant = difflib.get_close_matches(unknown, known, 1)
            hint = f"; did you mean {meant[0]}?" if meant else ""
            raise ApiError(400, f"unrecognized request argument: {unknown}{hint}", unknown) from None
        fault = max(found, key=lambda each: len(each["loc"]))  # where a field may be of several kinds, the one meant
        name = str(fault["loc"][0]) if fault["loc"] else None
        whole = name == "messages" or fault["type"] == "missing"  # other paths lead through kinds of a field
        raise ApiError(400, fault_message(fault, "" if whole else name or "the body"), name) from None
    asked.check()
    return asked
