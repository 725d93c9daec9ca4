"""How well drafts did, in the words of vLLM: of one answer for its client, and the same beside it by drafter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict

from storage.figures import divided
from storage.records import PLAIN, Round
from storage.run import Run


class Drafts(TypedDict):
    """Rounds that drafted something, and their tokens."""

    num_spec_steps: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int


class Speculation(Drafts):
    """The figures of vLLM's ``metrics.speculative_decoding`` (vllm-project/vllm#48915).

    ``mean_acceptance_length`` counts the target's own token; ``acceptance_histogram`` says at ``j`` how many rounds
    accepted ``j`` drafted tokens, and does not count it. Rounds without a draft are in none of them.
    """

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_tokens: int


def drafts_of(rounds: Iterable[Round]) -> Drafts:
    """The drafts of some rounds; of a tree its longest accepted path, continued, counts as the draft."""
    drafted = [r for r in rounds if r.drafted]
    return {
        "num_spec_steps": len(drafted),
        "num_draft_tokens": sum(len(r.drafted) for r in drafted),
        "num_accepted_draft_tokens": sum(r.accepted for r in drafted),
    }


def speculation_of(run: Run) -> Speculation:
    """The figures of an answer; one without drafters had drafts of 0 tokens."""
    rounds = run.generation.rounds
    draft_length = 0 if run.generation.policy == PLAIN else run.params.draft_length
    drafts = drafts_of(rounds)
    histogram = [0] * (draft_length + 1)
    for r in rounds:
        if r.drafted:
            histogram[r.accepted] += 1
    accepted = drafts["num_accepted_draft_tokens"]
    return {
        "mean_acceptance_length": 1.0 + (divided(accepted, drafts["num_spec_steps"]) or 0.0),
        "draft_acceptance_rate": divided(accepted, drafts["num_draft_tokens"]) or 0.0,
        "acceptance_histogram": histogram,
        **drafts,
        "num_spec_tokens": draft_length,
    }


def metrics_of(run: Run) -> dict[str, Any]:
    """The object ``metrics`` of an answer: vLLM's figures, and beside them which drafters there were, and the run's
    number in the history, ``None`` where it is not kept there yet."""
    generation, rounds = run.generation, run.generation.rounds
    names = dict.fromkeys(r.drafter for r in rounds if r.drafter is not None)
    return {
        "speculative_decoding": speculation_of(run),
        "drafters": {name: drafts_of(r for r in rounds if r.drafter == name) for name in names},
        "drafter_shares": generation.drafter_shares,
        "policy": generation.policy,
        "num_rounds": len(rounds),
        "tokens_per_second": generation.tokens_per_second,
        "run_id": run.id,
    }
