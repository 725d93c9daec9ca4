"""A stand-in for vLLM, which calls the proposer as the real one does."""

from types import SimpleNamespace

import numpy as np
import torch

from drafters.base import common_prefix
from tests import tiny

LENGTH = 4


def config(vocab=tiny.VOCAB, rank=0, ranks=1, length=LENGTH, window=tiny.WINDOW, model="tiny"):
    """What the proposer reads of vLLM's configuration."""
    return SimpleNamespace(
        parallel_config=SimpleNamespace(rank=rank, tensor_parallel_size=ranks),
        speculative_config=SimpleNamespace(num_speculative_tokens=length),
        device_config=SimpleNamespace(device_type="cpu"),
        model_config=SimpleNamespace(
            max_model_len=window, model=str(model), revision=None, dtype=torch.float32, get_vocab_size=lambda: vocab
        ),
    )


class Engine:
    """vLLM's part of a step: it verifies drafts of requests whose outputs are known, and calls the proposer.

    Args:
        texts: prompt and output of each request.
        cut: by request, the most tokens of a draft that are scored.
    """

    def __init__(self, proposer, texts, *, cut=None):
        proposer.load_model(None)
        self.proposer, self.texts, self.cut = proposer, texts, cut or {}
        self.done = [0] * len(texts)
        self.drafts = [[] for _ in texts]
        self.rounds = [[] for _ in texts]

    def unasked(self, requests):
        """A step in which the proposer is not asked, nor its drafts scored: each of these requests writes a token."""
        for one in requests:
            self.drafts[one], self.done[one] = [], self.done[one] + 1

    def step(self, requests):
        """A step of these requests, in this order of rows."""
        requests = [one for one in requests if self.done[one] < len(self.texts[one][1])]
        longest = max(len(prompt) + len(output) for prompt, output in self.texts)
        ids, counts, written = np.zeros((8, longest), np.int32), np.zeros(8, np.int32), []
        for row, one in enumerate(requests):
            prompt, output = self.texts[one]
            left, draft = output[self.done[one] :], self.drafts[one][: self.cut.get(one, LENGTH)]
            accepted = min(common_prefix(draft, left), len(left) - 1)
            written.append(left[: accepted + 1])
            self.rounds[one].append((tuple(self.drafts[one]), tuple(left[: accepted + 1])))
            self.done[one] += accepted + 1
            text = [*prompt, *output[: self.done[one]]]
            ids[row, : len(text)], counts[row] = text, len(text)
        for one, draft in zip(requests, self.proposer.propose(written, counts, ids, slot_mappings=None), strict=True):
            self.drafts[one] = draft

    def run(self, order=lambda live: live):
        """All of them, to their ends."""
        while live := [one for one, (_, output) in enumerate(self.texts) if self.done[one] < len(output)]:
            self.step(order(live))
