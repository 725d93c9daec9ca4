"""Log-probabilities of tokens that are no whole characters, or whose space belongs to them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from drafters.text import INCOMPLETE, TextStream, TokenTexts
from multidraft.engine.output import TokenLogprob
from multidraft.serving.openai.answers import ChatForm, CompletionForm, Form, Growing, News

POCKET = Path(__file__).parents[4] / "drafters" / "pocket" / "target"


def sentencepiece() -> PreTrainedTokenizerFast:
    """Words with their space, and single bytes for all else."""
    names = ["▁the", "▁cat", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(models.WordLevel({name: id for id, name in enumerate(names)}, unk_token="▁the"))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def logprobs(kind: type[Form], tokenizer: Any, tokens: list[int] | list[TokenLogprob]) -> Any:
    pool: Any = SimpleNamespace(tokenizer=tokenizer, token_texts=TokenTexts(tokenizer), name="", card_hash="")
    known = [t if isinstance(t, TokenLogprob) else TokenLogprob(t, -1.0, ((t, -1.0),)) for t in tokens]
    news = News(logprobs=known)
    return kind(pool, logprobs=True).choice(Growing(0, None, TextStream(tokenizer), 0), news)["logprobs"]


@pytest.mark.parametrize(
    ("tokenizer", "ids"),
    [
        (AutoTokenizer.from_pretrained(POCKET), AutoTokenizer.from_pretrained(POCKET)("né 😀 is")["input_ids"]),
        (sentencepiece(), [0, *(2 + byte for byte in "😀".encode()), 1]),
    ],
)
def test_parts_of_a_character_have_their_bytes_and_its_place(tokenizer: Any, ids: list[int]) -> None:
    text = tokenizer.decode(ids)
    told = logprobs(ChatForm, tokenizer, ids)["content"]
    assert INCOMPLETE in "".join(each["token"] for each in told)
    assert bytes(byte for each in told for byte in each["bytes"]).decode().removeprefix(" ") == text
    assert told[-1]["top_logprobs"][0]["bytes"] == told[-1]["bytes"]
    whole = logprobs(CompletionForm, tokenizer, ids)
    offsets = dict(zip(whole["text_offset"], whole["tokens"]))  # of those at one place the last
    assert text[text.index("😀") + 1 :] == offsets[text.index("😀") + 1] == whole["tokens"][-1]


def test_alternatives_that_are_parts_of_characters_are_told_apart() -> None:
    tokenizer, byte = sentencepiece(), 2
    known = TokenLogprob(byte + 0xE2, -2.0, ((byte + 0xF0, -1.0), (0, -3.0)))
    told = logprobs(CompletionForm, tokenizer, [known])
    assert told["tokens"] == [r"bytes:\xe2"]
    assert told["top_logprobs"] == [{r"bytes:\xf0": -1.0, " the": -3.0, r"bytes:\xe2": -2.0}]


def test_special_tokens_have_a_name_and_no_room() -> None:
    tokenizer = AutoTokenizer.from_pretrained(POCKET)
    end = tokenizer.convert_tokens_to_ids("<|end|>")
    told = logprobs(CompletionForm, tokenizer, [end, *tokenizer("is")["input_ids"]])
    assert told["tokens"][0] == "<|end|>" and told["text_offset"][:2] == [0, 0]


def test_a_word_keeps_its_space() -> None:
    tokenizer = sentencepiece()
    told = logprobs(CompletionForm, tokenizer, [0, 1])
    assert told["tokens"] == [" the", " cat"] and told["text_offset"] == [0, 3]
