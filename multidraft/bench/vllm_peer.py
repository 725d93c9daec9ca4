"""vLLM with the pool's target, by itself and with its n-gram method, each in a process that vLLM starts."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
import weakref
from collections.abc import Sequence
from typing import Any

from drafters.pool import Pool
from multidraft.bench.engines import Output, Peer

CACHE_GIB = "1"
"""GiB of keys and values, more than one text of small models needs."""


def installed() -> bool:
    """Whether vLLM can be imported."""
    return importlib.util.find_spec("vllm") is not None


class VLLM(Peer):
    """vLLM on the CPU in float32, one request at a time.

    Args:
        speculative: its ``speculative_config``.
    """

    def __init__(self, name: str, pool: Pool, speculative: dict[str, Any] | None = None):
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", CACHE_GIB)
        import vllm

        self.name, self.stop, self.library = name, sorted(pool.stop_ids), vllm
        folder = tempfile.TemporaryDirectory()
        weakref.finalize(self, folder.cleanup)
        pool.target.model.save_pretrained(folder.name)
        self.engine = vllm.LLM(
            folder.name,
            skip_tokenizer_init=True,
            dtype="float32",
            enforce_eager=True,  # compiling takes minutes
            max_num_seqs=1,
            max_model_len=pool.target.window,
            enable_prefix_caching=False,  # a prompt is read once by each
            speculative_config=speculative,
            disable_log_stats=False,  # of which the time of the first token is one
        )

    def generate(self, ids: Sequence[int], most: int) -> Output:
        params = self.library.SamplingParams(
            temperature=0.0, max_tokens=most, stop_token_ids=self.stop, ignore_eos=True, detokenize=False
        )
        begun = time.perf_counter()
        (found,) = self.engine.generate([{"prompt_token_ids": list(ids)}], params, use_tqdm=False)
        seconds = time.perf_counter() - begun
        return Output(list(found.outputs[0].token_ids), float(found.metrics.first_token_latency), seconds)


def vllm_peers(pool: Pool, draft_length: int) -> list[Peer]:
    """vLLM alone and with n-grams of the prompt; none where it is not installed."""
    if not installed():
        return []
    ngram = {"method": "ngram", "num_speculative_tokens": draft_length, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    return [VLLM("vLLM", pool), VLLM("vLLM, n-gram", pool, ngram)]
