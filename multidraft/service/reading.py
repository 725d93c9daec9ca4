"""The target reads a text and says how probable it finds it."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from drafters.errors import ContextWindowError
from multidraft.engine.output import TokenLogprob, logprobs_of_prompt
from multidraft.service.jobs import Job
from multidraft.service.workbench import Workbench


class Reading(Job[list[TokenLogprob]]):
    """The log-probabilities of a text's tokens, each with ``top`` alternatives.

    On ZeroGPU there is no device to read on.

    Raises:
        ContextWindowError: the text has more tokens than the window of the target.
        TextMemoryError: its keys and values take more than those of all texts may.
    """

    kind, plural = "reading", "readings"
    allowed = "run_seconds"

    def __init__(self, workbench: Workbench, ids: Sequence[int], top: int):
        super().__init__()
        if len(ids) > (most := workbench.pool.target.window):
            name = workbench.pool.name
            raise ContextWindowError(
                f"the text has {len(ids):,} tokens, but the context window of pool {name!r} holds {most:,}; shorten it"
            )
        workbench.pool.caches.check(len(ids), 0, most)
        workbench.limits.check_text(len(ids), 0)
        self.workbench, self.pool, self.ids, self.top = workbench, workbench.pool, ids, top

    def steps(self) -> Generator[object, None, list[TokenLogprob]]:
        pool = yield from self.workbench.lender.lend(self.pool, len(self.ids))
        found = list[TokenLogprob]()
        try:
            with pool.lock:
                for part in logprobs_of_prompt(pool, self.ids, self.top):
                    found += part
        finally:
            self.workbench.lender.take_back(pool, self.pool)
        return found
