"""Token ids to text as they stream in."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
LONGEST_START = 3
"""UTF-8 characters have up to four bytes, so a broken-off one has at most three."""
CONTEXT = 4
"""Tokens decoded along with a guess, so that its spaces and broken-off characters come out as in the whole text."""


class TextStream:
    """Decodes a growing output token by token.

    A character whose bytes span several tokens appears with the last of them (one that the output breaks off
    never does), and spaces come out as they stand in the whole text. Only the tokens since the last complete
    character are decoded again, so the cost does not grow with the output.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self.begin = self.read = 0
        self.known = ""

    def add(self, tokens: Sequence[int]) -> list[str]:
        """The text that each of ``tokens`` adds; special tokens add none."""
        return [self._add(token) for token in tokens]

    def _add(self, token: int) -> str:
        self.ids.append(token)
        # `known` is the text given out since token `begin`: decoding from a little before the new token keeps
        # the space that some tokenizers drop at the very start.
        text = self._decode()
        held = min(LONGEST_START, len(text) - len(text.rstrip(INCOMPLETE)))
        final = text[: len(text) - held]
        piece = final[len(self.known) :]
        if held:
            self.known = final
        else:
            self.begin, self.read = self.read, len(self.ids)
            self.known = self._decode()
        return piece

    def _decode(self) -> str:
        return str(self.tokenizer.decode(self.ids[self.begin :], skip_special_tokens=True))


def guess_text(tokenizer: PreTrainedTokenizerBase, context: Sequence[int], guess: Sequence[int]) -> str:
    """The text that ``guess`` would have added after ``context``; special tokens are shown by their names."""
    before = list(context[-CONTEXT:])
    known = str(tokenizer.decode(before)).rstrip(INCOMPLETE)
    return str(tokenizer.decode([*before, *guess]))[len(known) :]
