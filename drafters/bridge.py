"""``bridge``: a drafter with a tokenizer of its own, bridged to the target's through text.

The idea is that of universal assisted decoding (Timor et al. 2025, string-level exact match, as in transformers'
``AssistedCandidateGeneratorDifferentTokenizers``); how the two sides are aligned here is our own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Generator
from transformers import PreTrainedTokenizerBase

from drafters.base import Drafter, FeatureSource
from drafters.draft import Draft
from drafters.proposing import PointMassDrafter
from drafters.sampling import SamplingParams
from drafters.text import INCOMPLETE, TextStream, complete

CHUNK = 64
CUT = re.compile(r"(?<=\S) (?=\S)")
"""Where a text may be cut for encoding: at the first of these after so many characters."""

LEAD = 8
"""Tokens before a border that are decoded or encoded along, so that spaces and pieces come out as they should."""

ANCHORS = ("\n", ".", "0")
"""What a draft's text is encoded behind; several, since tokenizers may join any one of them with what follows."""


class BridgedDrafter(PointMassDrafter):
    """Lets a drafter propose in its own tokens and hands the target the same text in the target's.

    Drafts are chains of point masses: the inner drafter is asked greedily, and of a tree its main path is taken. It is
    asked for as many of its own tokens as the target wants; what is too long is cut off. The draft is empty where its
    text cannot be written in the target's tokens behind those that are there.

    Special tokens of the target's text (those of a chat template, say) are dropped, as the library does it: the inner
    drafter would read them as odd words. Other parts of a template stay as text. The inner text begins with the inner
    tokenizer's own beginning token, if it has one that it adds by itself. A special token that the inner drafter
    proposes ends the draft.

    All of this follows from the context alone, never from earlier calls. γ and acceptances are found by drafting at
    each position: a round of the inner drafter for every token. The first token of a short draft may differ from that
    of a long one (a word is spelt in other pieces where it is cut), so a replay with shorter drafts than the table was
    made for is an approximation.

    Args:
        own, target: the tokenizers of the inner drafter and of the target.
        vocab_size: the target's; tokens beyond it end a draft.
    """

    kind = "bridge"

    def __init__(
        self, name: str, inner: Drafter, own: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase, vocab_size: int
    ):
        self.name, self.inner, self.own, self.target, self.vocab_size = name, inner, own, target, vocab_size
        self.parameter_count, self.stored_bytes = inner.parameter_count, inner.stored_bytes
        self.own_special = frozenset(own.all_special_ids)
        self._ids = _GrowingIds(own)
        self._forget()

    def twin(self, target: FeatureSource) -> BridgedDrafter:
        inner = self.inner.twin(target)
        return BridgedDrafter(self.name, inner, self.own, self.target, self.vocab_size)

    def forget(self) -> None:
        self.inner.forget()

    def prepare(self, context: Sequence[int]) -> None:
        if ids := self._translated(context):
            self.inner.prepare(ids)

    def propose(
        self, context: Sequence[int], length: int, params: SamplingParams, generator: Generator, *, with_q: bool = False
    ) -> Draft:
        ids = self._translated(context)
        if not ids or length < 1:
            return Draft.empty()
        draft = self.inner.propose(ids, length, replace(params, temperature=0.0), generator)
        tokens = [draft.tokens[node] for node in draft.main_path(())]
        if text := self._spelt(ids, tokens):
            return Draft.chain(self._continuation(list(context), text, length))
        return Draft.empty()

    def _translated(self, context: Sequence[int]) -> list[int]:
        """The context's text in the inner drafter's ids. A character that is not complete yet is left out."""
        context, known = list(context), len(self._stream.ids)
        if context[:known] != self._stream.ids:
            self._forget()
            known = 0
        self._text += self._stream.extend(context[known:])
        return self._ids.of(self._text)

    def _forget(self) -> None:
        self._stream, self._text = TextStream(self.target, clean_up_tokenization_spaces=False), ""

    def _spelt(self, ids: Sequence[int], tokens: list[int]) -> str:
        """The text that the inner ``tokens`` add to ``ids``, up to a special token or broken character."""
        end = next((i for i, token in enumerate(tokens) if token in self.own_special), len(tokens))
        lead = list(ids[-LEAD:])
        before, after = _decode(self.own, lead), _decode(self.own, lead + tokens[:end])
        return after[len(before) :].split(INCOMPLETE)[0] if after.startswith(before) else ""

    def _continuation(self, context: list[int], text: str, length: int) -> list[int]:
        """Up to ``length`` tokens of the target that say ``text`` behind ``context``; none if that cannot be said."""
        lead = context[-LEAD:]
        start = complete(_decode(self.target, lead))
        for spelling in self._spellings(context, text):
            tokens: list[int] = []
            for token in spelling[:length]:
                said = complete(_decode(self.target, [*lead, *tokens, token]))
                if token == self.target.unk_token_id or token >= self.vocab_size or not (start + text).startswith(said):
                    break
                tokens.append(token)
            if tokens:
                return tokens
        return []

    def _spellings(self, context: list[int], text: str) -> Iterator[list[int]]:
        """Tokens that may say ``text``, the most natural first.

        Together with a few tokens before the border, if those come out as they are: tokens that depend on what stands
        before them (a leading space, an open character) are then right. Otherwise by themselves, which is how a target
        goes on that has ended a token inside a word. Last behind something else, which keeps tokenizers that mark the
        beginnings of words from marking one here.
        """
        for count in range(min(LEAD // 2, len(context)), 0, -1):
            tail = context[-count:]
            before = complete(_decode(self.target, tail))
            spelt = _encode(self.target, before + text)
            if spelt[:count] == tail:
                yield spelt[count:]
                break
        yield _encode(self.target, text)
        for anchor in ANCHORS:
            known = _encode(self.target, anchor)
            spelt = _encode(self.target, anchor + text)
            if known and spelt[: len(known)] == known:
                yield spelt[len(known) :]


class _GrowingIds:
    """The ids of a growing text; only its end is encoded again.

    The text is cut before single spaces, where the common tokenizers end a token anyway, and each piece is encoded by
    itself, so that what follows never changes the ids of a piece. A tokenizer that finds other tokens at such cuts
    reads the whole text each time.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer = tokenizer
        marked = tokenizer("")["input_ids"]
        self.start: list[int] = [i for i in marked[:1] if i == tokenizer.bos_token_id]
        self.cuttable = _ends_tokens_at_spaces(tokenizer)
        self.text, self.ids = "", list[int]()

    def of(self, text: str) -> list[int]:
        """The ids of ``text`` behind the tokenizer's own beginning token, if it has one that it adds by itself."""
        if not text.startswith(self.text):
            self.text, self.ids = "", []
        while self.cuttable and (cut := CUT.search(text, len(self.text) + CHUNK)):
            piece = text[len(self.text) : cut.start()]
            self.ids.extend(_encode(self.tokenizer, piece))
            self.text += piece
        return [*self.start, *self.ids, *_encode(self.tokenizer, text[len(self.text) :])]


def _ends_tokens_at_spaces(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a text cut before single spaces has the ids of the whole text."""
    splitter = getattr(getattr(tokenizer, "backend_tokenizer", None), "pre_tokenizer", None)
    if splitter is None:
        return False
    pieces = ["One two,", " 3 (four", " five)", " six's.\nSeven"]
    cuts = {len("".join(pieces[:n])) for n in range(1, len(pieces))}
    spans = [span for _, span in splitter.pre_tokenize_str("".join(pieces))]
    if any(start < cut < end for cut in cuts for start, end in spans):
        return False
    # Some tokenizers put a space before whatever they are given, even before another one.
    encoded = [_encode(tokenizer, piece) for piece in pieces]
    return _encode(tokenizer, "".join(pieces)) == [token for piece in encoded for token in piece]


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False, verbose=False))


def _decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))
