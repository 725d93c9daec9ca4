"""Prompts to token ids, and token ids to text as they stream in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drafters.errors import PoolError

if TYPE_CHECKING:  # a second or two that whoever only reads runs need not wait
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Turn = tuple[str, str]
"""An earlier turn of a conversation: the prompt and its answer."""

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"

SEEN_BEFORE = 8
"""Tokens of what an output goes on from that are decoded with its first ones: enough for some text among them."""


def chat_ids(
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    turns: Sequence[Turn] = (),
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> list[int]:
    """Token ids of a user's prompt after ``turns``, as :func:`message_ids`; of the prompt as it stands where there is
    no chat template."""
    if not tokenizer.chat_template:
        return list(tokenizer(prompt, verbose=False)["input_ids"])
    texts = [*(text for turn in turns for text in turn), prompt]
    messages = [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(texts)]
    return message_ids(tokenizer, messages, settings)


def message_ids(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, str]], settings: Mapping[str, Any]
) -> list[int]:
    """Token ids of messages, each with ``role`` and ``content``, in the tokenizer's chat form. The template is given
    ``settings`` besides, e.g. ``enable_thinking``."""
    quiet = {"verbose": False}  # a prompt beyond the window is refused later on, not warned of
    ours = {"add_generation_prompt": True, "return_dict": False, "tokenizer_kwargs": quiet}
    return list(tokenizer.apply_chat_template([dict(message) for message in messages], **ours, **settings))


def end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Tokens that end an answer, by the tokenizer and by the model's ``generation_config``."""
    found = (tokenizer.eos_token_id, model.generation_config.eos_token_id)
    return {id for value in found for id in (value if isinstance(value, list) else [value]) if id is not None}


def stop_ids_of(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], pool: str
) -> frozenset[int]:
    """Those, and ``texts`` of the pool's card; :class:`PoolError` where one of these is no single token."""
    ids = end_ids(model, tokenizer)
    for text in texts:
        found = tokenizer.convert_tokens_to_ids(text)
        if found is None or found == tokenizer.unk_token_id:
            raise PoolError(f"stop token {text!r} of pool {pool!r} is not a single token of its tokenizer")
        ids.add(int(found))
    return frozenset(ids)


class TextStream:
    """Decodes a growing output, without special tokens.

    A character whose bytes span several tokens appears with the last of them (one that the output breaks off
    never does), and spaces come out as they stand in the whole text. Only the tokens since the last complete
    character are decoded again, so the cost does not grow with the output.

    Args:
        after: the tokens that the output goes on from, where it is one text with them: its first word keeps its space.
        decoding: further arguments of the tokenizer's ``decode``.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, after: Sequence[int] = (), **decoding: Any):
        self.decode = decoder_of(tokenizer, **decoding)
        # Where they begin within a character, it garbles those that are spelt in bytes behind it: up to 3 tokens more
        # help. One that is broken off at their end would come with all that it garbles: then none are taken.
        seen = (list(after[-count:]) for count in range(SEEN_BEFORE, SEEN_BEFORE + 4))
        self.ids = next((ids for ids in seen if (text := self.decode(ids)) == complete(text)), [])
        self.begin, self.read = 0, len(self.ids)
        self.known = self.decode(self.ids)
        """The text given out since token ``begin``, and that before it."""

    def add(self, tokens: Sequence[int]) -> list[str]:
        """The text that each of ``tokens`` adds; special tokens add none."""
        return [self.extend([token]) for token in tokens]

    def extend(self, tokens: Sequence[int]) -> str:
        """The text that ``tokens`` add together."""
        self.ids.extend(tokens)
        # Decoding from a little before the new tokens keeps the space that some tokenizers drop at the very start.
        text = self.decode(self.ids[self.begin :])
        final = complete(text)
        if final != text and not final.startswith(self.known):
            return ""  # byte fallback: a broken-off character garbles those that end right before it
        piece = final[len(self.known) :]
        self.known = final
        if piece and final == text:  # special tokens alone would not keep the space
            self.begin, self.read = self.read, len(self.ids)
            self.known = self.decode(self.ids[self.begin :])
        return piece


def decoder_of(tokenizer: PreTrainedTokenizerBase, **decoding: Any) -> Callable[[list[int]], str]:
    """Text of token ids, without special tokens; directly by the library below where ``transformers`` only passes ids
    on, which takes a third of the time."""
    from transformers import TokenizersBackend

    cleans = decoding.get("clean_up_tokenization_spaces", getattr(tokenizer, "clean_up_tokenization_spaces", True))
    if type(tokenizer)._decode is TokenizersBackend._decode and not cleans:
        return partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=True)
    return lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True, **decoding))


def complete(text: str) -> str:
    """``text`` without the beginning of a character at its end, which with byte fallback takes the place of all
    characters that are spelt in bytes right before it too."""
    return text.rstrip(INCOMPLETE)


class TokenTexts(dict[int, str]):
    """The text of each token by itself, as it stands within a text, decoded when it is first asked for; special tokens
    are shown by their names, parts of a character as U+FFFD."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        super().__init__()
        self.tokenizer = tokenizer

    def __missing__(self, token: int) -> str:
        # After itself: at the very start some tokenizers drop the space of a word.
        once, twice = (str(self.tokenizer.decode([token] * times)) for times in (1, 2))
        return self.setdefault(token, twice[len(once) :])
