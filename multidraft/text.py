"""Token ids to text as they stream in."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class TextStream:
    """Decodes a growing output token by token.

    A character whose bytes span several tokens appears with the last of them, and spaces come out as they
    stand in the whole text. Only the tokens since the last complete character are decoded again, so the
    cost does not grow with the output.
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
        # `known` is the text of the tokens begin…read: decoding from a little before the new token keeps
        # the space that some tokenizers drop at the very start.
        text = self.tokenizer.decode(self.ids[self.begin :], skip_special_tokens=True)
        if text.endswith(INCOMPLETE) and len(self.ids) - self.read < 8:
            return ""
        piece = text[len(self.known) :]
        self.begin, self.read = self.read, len(self.ids)
        self.known = self.tokenizer.decode(self.ids[self.begin :], skip_special_tokens=True)
        return piece
