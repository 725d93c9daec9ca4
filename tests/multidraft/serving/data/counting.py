"""A drafter for the recorded run: it stays as it is while the bundled ones get better."""

from drafters.draft import Draft
from drafters.proposing import PointMassDrafter


class Copy(PointMassDrafter):
    """Copies what followed the last occurrence of the last ``n`` tokens."""

    def __init__(self, name, target, tokenizer, n):
        self.n = n

    def draft(self, context, length):
        tail = list(context[-self.n :])
        for end in range(len(context) - 1, self.n - 1, -1):
            if list(context[end - self.n : end]) == tail:
                return Draft.chain(context[end : end + length])
        return Draft.empty()
