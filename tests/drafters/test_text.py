"""Streamed text equals the text of the whole output."""

from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from drafters.text import INCOMPLETE, TextStream, TokenTexts, decoder_of
from tests import tiny

POCKET = Path(__file__).parents[2] / "drafters" / "pocket" / "target"


@pytest.fixture(scope="module")
def pocket():
    return AutoTokenizer.from_pretrained(POCKET)


@pytest.fixture(scope="module")
def one_byte():
    """The worst case: a token for each byte and no merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: i for i, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.fixture(scope="module")
def metaspace():
    """A SentencePiece-like tokenizer: the space belongs to the word, and is dropped at the very start."""
    words = {"▁the": 0, "▁cat": 1, "s": 2, "▁": 3, "on": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="▁"))
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.fixture(scope="module")
def bytes_behind_words():
    """As of Llama 2: what no token stands for is spelt in bytes, and the bytes of a run are decoded together."""
    vocab = {"<unk>": 0, "▁": 1, "a": 2, "▁a": 3} | {f"<0x{byte:02X}>": 4 + byte for byte in range(256)}
    model = models.BPE(vocab, [("▁", "a")], unk_token="<unk>", byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def stream(tokenizer, ids, sizes=(1,)):
    """Feed ``ids`` in rounds of the given sizes; return the pieces."""
    text, pieces, start, turn = TextStream(tokenizer), [], 0, 0
    while start < len(ids):
        size = sizes[turn % len(sizes)]
        pieces += text.add(ids[start : start + size])
        start, turn = start + size, turn + 1
    assert len(pieces) == len(ids)
    return pieces


TEXTS = [
    "Plain words, 1234 digits.",
    "naïve café – «größer»",
    "日本語のテキスト",
    "🎉👩‍👩‍👧‍👦🏳️‍🌈 flags 🇩🇪",
    "  leading and  double  spaces ",
    "line\n\nbreak\ttab\r\n",
    "\N{REPLACEMENT CHARACTER} as itself",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 a𐍈b",
]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_come_out_whole(pocket, one_byte, bytes_behind_words, text):
    for tokenizer in (pocket, one_byte, bytes_behind_words):
        ids = tokenizer(text)["input_ids"]
        assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)
        assert tokenizer.decode(ids) == text or (text.startswith(" ") and tokenizer is bytes_behind_words)
    assert len(one_byte(text)["input_ids"]) == len(text.encode())


@given(text=st.text(max_size=40), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_any_text_in_rounds_of_any_size(pocket, one_byte, bytes_behind_words, text, sizes):
    for tokenizer in (pocket, one_byte, bytes_behind_words):
        ids = tokenizer(text)["input_ids"]
        assert "".join(stream(tokenizer, ids, sizes)) == tokenizer.decode(ids, skip_special_tokens=True)


@settings(max_examples=300)
@given(ids=st.lists(st.one_of(st.integers(0, 255), st.integers(128, 255)), max_size=40))
def test_complete_text_among_broken_bytes_is_never_lost(one_byte, ids):
    """A model may emit bytes that are no text; followed by plain text, all comes out as in the whole decode."""
    ids = [*ids, *one_byte("end.")["input_ids"]]
    assert "".join(stream(one_byte, ids)) == one_byte.decode(ids)


def test_a_character_that_the_output_breaks_off_is_left_out(one_byte):
    assert stream(one_byte, one_byte("a🎉")["input_ids"][:-1]) == ["a", "", "", ""]


def test_a_character_appears_with_its_last_token(one_byte):
    pieces = stream(one_byte, one_byte("aé🎉b")["input_ids"])
    assert pieces == ["a", "", "é", "", "", "", "🎉", "b"]


@pytest.mark.parametrize("together", [False, True])
def test_characters_that_are_spelt_in_bytes_one_after_the_other(bytes_behind_words, together):
    ids = bytes_behind_words("a🎉éa🎉")["input_ids"]
    text, pieces = TextStream(bytes_behind_words), []
    for begin in range(0, len(ids), 5):
        part = ids[begin : begin + 5]
        pieces += [text.extend(part)] if together else text.add(part)
    assert "".join(pieces) == "a🎉éa🎉"


def test_special_tokens_add_no_text(pocket):
    a, b = pocket("ab cd")["input_ids"][0], pocket(" cd")["input_ids"][0]
    end = pocket.convert_tokens_to_ids("<|end|>")
    pieces = stream(pocket, [a, end, b, end])
    assert pieces[1] == pieces[3] == ""
    assert "".join(pieces) == pocket.decode([a, b])


def test_the_space_of_a_word_is_kept_between_words_and_dropped_at_the_start(metaspace):
    ids = [0, 1, 2, 0, 1, 0]
    assert metaspace.decode(ids) == "the cats the cat the"
    assert stream(metaspace, ids) == ["the", " cat", "s", " the", " cat", " the"]


def test_an_output_that_goes_on_from_a_text_keeps_the_space_of_its_first_word(metaspace):
    assert TextStream(metaspace, [0]).add([1, 0]) == [" cat", " the"]
    assert TextStream(metaspace).add([1, 0]) == ["cat", " the"]


@given(text=st.text(max_size=40), data=st.data())
def test_any_text_goes_on_as_it_stands(pocket, one_byte, bytes_behind_words, text, data):
    for tokenizer in (pocket, one_byte, bytes_behind_words):
        ids = tokenizer(text)["input_ids"]
        first = data.draw(st.integers(0, len(ids)))
        before, whole = tokenizer.decode(ids[:first]), tokenizer.decode(ids)
        assume(INCOMPLETE not in before)
        assert before + "".join(TextStream(tokenizer, ids[:first]).add(ids[first:])) == whole


@pytest.mark.parametrize("before", ["a日本語", "🎉日🎉日"])
def test_an_output_goes_on_from_characters_that_are_spelt_in_bytes(bytes_behind_words, before):
    ids, word = bytes_behind_words(before)["input_ids"], bytes_behind_words("a")["input_ids"]
    assert TextStream(bytes_behind_words, ids).add([*word, *word]) == [" a", " a"]


def test_a_character_that_a_prompt_breaks_off_garbles_nothing_before_it(bytes_behind_words):
    ids = bytes_behind_words("a🎉éa")["input_ids"]
    assert "".join(TextStream(bytes_behind_words, ids[:-2]).add(ids[-2:])) == f"{INCOMPLETE}a"


def test_a_token_reads_as_it_would_in_the_text(metaspace, one_byte, pocket):
    assert [TokenTexts(metaspace)[token] for token in (0, 1, 2)] == [" the", " cat", "s"]
    texts = TokenTexts(one_byte)
    assert [texts[token] for token in one_byte("aé")["input_ids"]] == ["a", *2 * INCOMPLETE]
    end = pocket.convert_tokens_to_ids("<|end|>")
    assert TokenTexts(pocket)[end] == "<|end|>"


def test_a_token_is_decoded_once(pocket, monkeypatch):
    texts, decode = TokenTexts(pocket), type(pocket).decode
    known = texts[5]
    monkeypatch.setattr(type(pocket), "decode", lambda *args: pytest.fail("decoded again"))
    assert texts[5] == known and decode is not type(pocket).decode


def test_a_long_output_is_decoded_in_constant_steps(monkeypatch):
    """The cost of a token must not grow with the output."""
    text, decoded = TextStream(tiny.tokenizer()), []
    decode = text.decode
    monkeypatch.setattr(text, "decode", lambda ids: (decoded.append(len(ids)), decode(ids))[1])
    text.add([2, 3, 4] * 100)
    assert max(decoded) <= 3


@pytest.mark.parametrize("cleans", [False, True])
def test_the_short_way_to_a_text_is_that_of_the_library(one_byte, cleans):
    ids = one_byte("aé 🎉 , b .")["input_ids"]
    for chosen in ({}, {"clean_up_tokenization_spaces": cleans}):
        assert decoder_of(one_byte, **chosen)(ids) == one_byte.decode(ids, skip_special_tokens=True, **chosen)


def test_a_special_token_does_not_take_the_space_of_the_next_word(metaspace):
    metaspace = deepcopy(metaspace)
    metaspace.add_special_tokens({"additional_special_tokens": ["<end>"]})
    end = metaspace.convert_tokens_to_ids("<end>")
    assert stream(metaspace, [0, end, end, 1]) == ["the", "", "", " cat"]
