"""What is in a pool: parameters, measured costs per step, accepted tokens by drafter and task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any, TypeVar

import numpy as np
import torch

from drafters.draft import Draft
from drafters.errors import PromptError
from drafters.hardware import clock_of
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.bench.suites import SuiteItem
from multidraft.bench.table import markdown
from multidraft.engine.decoding import generate
from multidraft.replay.regret import acceptance_table, fixed_rounds
from storage.records import PLAIN

T = TypeVar("T")
PROBE_CONTEXT = 200
PROBE_WARMUP, PROBE_REPEATS = 5, 25
PLAIN_TOKENS, PLAIN_REPEATS = 64, 7


def describe_pool(pool: Pool) -> dict[str, Any]:
    """Parameters and measured milliseconds of target and drafters (median of repeated steps, warm).

    ``step_ms`` is one token by the target alone; ``verify_ms`` one forward over a full draft and the pending
    token; a drafter's ``draft_step_ms`` is the time of a draft divided by its length, that of a tree by its depth.
    """
    length = pool.draft_length
    room = pool.target.window - PROBE_WARMUP - PROBE_REPEATS - length - 1
    # It repeats itself, or prompt lookup would have nothing to say and look free.
    context = [(7 + place % 50) % pool.target.vocab_size for place in range(min(PROBE_CONTEXT, room))]
    params = SamplingParams(draft_length=length)
    generator = torch.Generator(device=pool.device)

    def verify(draft: Draft) -> None:
        pool.target.score(draft)
        pool.target.accept([], context[-1])

    pool.target.prefill(context)
    step = _milliseconds(pool, lambda: verify(Draft.empty()))
    pool.target.prefill(context)
    full = _milliseconds(pool, lambda: verify(Draft.chain(context[:length])))
    drafters = []
    for drafter in pool.drafters:
        drafter.prepare(context)
        propose = partial(drafter.propose, context, length, params, generator)
        drafted, cost = propose().depth, _milliseconds(pool, propose)
        about = {"name": drafter.name, "kind": drafter.kind, "parameters": drafter.parameter_count}
        drafters.append({**about, "draft_step_ms": cost / max(drafted, 1)})
    parameters = pool.target.model.num_parameters()
    return {
        "pool": pool.name,
        "title": pool.title,
        "card_hash": pool.card_hash,
        "device": str(pool.device),
        "dtype": pool.dtype,
        "context_window": pool.target.window,
        "target": {"parameters": parameters, "step_ms": step, "verify_ms": full, "draft_length": length},
        "drafters": drafters,
    }


def _milliseconds(pool: Pool, action: Callable[[], object]) -> float:
    seconds = [_seconds(pool, action)[0] for _ in range(PROBE_WARMUP + PROBE_REPEATS)]
    return 1000 * median(seconds[PROBE_WARMUP:])


def _seconds(pool: Pool, action: Callable[[], T]) -> tuple[float, T]:
    """Seconds that ``action`` takes on the device, and what it returns."""
    clock = clock_of(pool.device)
    started = clock()
    result = action()
    return clock() - started, result


def compare_plain_decoding(pool: Pool, prompt: str) -> dict[str, float]:
    """Tokens per second of plain greedy decoding, by this engine and by ``transformers``' own ``generate``.

    Both read the prompt and decode it, in turns; medians, after one turn each to warm up. Our baseline has to be the
    faster one, or speed-ups over it would be worth nothing.
    """
    ids = torch.tensor([pool.encode(prompt)], device=pool.device)
    params, pad = SamplingParams(max_new_tokens=PLAIN_TOKENS), min(pool.stop_ids, default=0)
    plain = partial(pool.target.model.generate, ids, attention_mask=torch.ones_like(ids), do_sample=False)
    ours, theirs = [], []
    for _ in range(PLAIN_REPEATS + 1):
        out = generate(pool, prompt, PLAIN, params)
        ours.append(len(out.token_ids) / (out.prefill_seconds + out.seconds))
        action = partial(plain, max_new_tokens=len(out.token_ids), pad_token_id=pad)
        seconds, output = _seconds(pool, action)
        theirs.append((output.shape[1] - ids.shape[1]) / seconds)
    return {"ours": median(ours[1:]), "transformers": median(theirs[1:])}


def accepted_by_task(
    pool: Pool, items: Sequence[SuiteItem], params: SamplingParams, progress: Callable[[int], None] = lambda done: None
) -> dict[str, dict[str, float]]:
    """MAT of every drafter on every task, over greedy answers: ``{task: {drafter: MAT}}``.

    Each prompt is answered once; the drafters' rounds follow exactly from the acceptance table.
    Prompts that do not fit the context window are left out. ``progress`` is told how many prompts are done.
    """
    tokens: Counter[str] = Counter()
    rounds: dict[str, np.ndarray] = {}
    for done, item in enumerate(items):
        progress(done)
        try:
            out = generate(pool, item.prompt, "normal-hedge", params)
        except PromptError:
            continue
        table = acceptance_table(pool, pool.encode(item.prompt), out.token_ids, params.draft_length)
        tokens[item.task] += len(out.token_ids)
        rounds[item.task] = rounds.get(item.task, 0) + np.array([fixed_rounds(row) for row in table])
    progress(len(items))
    names = pool.drafter_names
    return {task: dict(zip(names, (tokens[task] / of_task).tolist())) for task, of_task in rounds.items()}


def render_matrix(matrix: dict[str, dict[str, float]]) -> str:
    """Markdown table, drafters down, tasks across; those that are best of a task, as shown, are marked with ``*``."""
    tasks, names = list(matrix), list(next(iter(matrix.values()), {}))
    shown = {task: {name: f"{value:.2f}" for name, value in row.items()} for task, row in matrix.items()}
    best = {task: f"{max(row.values()):.2f}" for task, row in matrix.items()}
    rows = [(name, *(shown[t][name] + "*" * (shown[t][name] == best[t]) for t in tasks)) for name in names]
    return markdown(["drafter", *tasks], rows)
