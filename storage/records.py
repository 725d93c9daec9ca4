"""The records of a generation, which every floor shares: what streams to the page, the policy learns from, is stored
and replayed. (``storage.run`` adds what is known of how it was made.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from drafters.draft import OWN
from drafters.text import Turn
from drafters.traffic import Prior
from storage.clock import uncertainty
from storage.figures import divided

PLAIN = "autoregressive"
"""The policy that drafts nothing."""

PHASES = ("draft", "verify", "policy", "evaluate")
"""The parts of a round that are timed: ``Round.draft_seconds`` and so on."""

Status = Literal["running", "completed", "stopped", "context_limit", "cancelled", "error", "interrupted"]
"""How a generation ended: at ``max_new_tokens`` (completed), at a stop token (stopped), at the end of the
target's context window (context_limit), by the caller (cancelled), by an error, or with the server (interrupted), when
nothing is known of what it had written."""

_STATUS_TITLES = {
    "completed": "at max tokens",
    "stopped": "completed",
    "context_limit": "context window full",
    "cancelled": "stopped",
    "error": "failed",
    "interrupted": "interrupted",
}

FINISHED = ("completed", "stopped", "context_limit")
"""Statuses of runs that came to an end of their own: only these have a regret."""


def status_title(status: str) -> str:
    """What people are told of how a run ended; programs are told the status."""
    return _STATUS_TITLES.get(status, status)


@dataclass
class Round:
    """One round: a draft, its verification, the target's own token; by default without a draft, and not timed.

    It is not to be changed. (Python takes four times as long to make one that cannot be.)

    Attributes:
        index: number of the round within the generation, from 0.
        arm: index of the drafter in the pool; ``None`` where no drafter was asked.
        drafter: its name; ``None`` likewise.
        drafted: the proposed token ids; of a tree the accepted path continued by its first children.
        accepted: how many leading tokens of ``drafted`` are in the output.
        tokens: the tokens this round emitted: the accepted ones, then the target's own. Without an own
            token (``own is None``) the accepted path already ended the output (stop token or length).
        own: the target's own token: the correction after a rejection, the bonus after full acceptance.
        text: the text these tokens add to the output.
        pieces: the same text token by token (a character whose bytes span tokens is shown with its last one).
        draft_length: the draft length asked for.
        nodes: drafted tokens that the target scored, of a tree all its nodes; 0 for a round without a draft.
        depth: tokens of the draft's longest path; that of a chain has all its nodes.
        together: whether all drafters drafted; ``arm`` is then the first that proposed the accepted path.
        reward: the reward in [0, 1] that the policy credited to the arm; ``None`` where it keeps none.
        block_divergence: BD (MetaSD Eq. 4) in [0, 1]; ``None`` unless the policy asked for it.
        probabilities: the policy's probabilities over the arms *before* this round; ``None`` where it has none.
        draft_seconds: drafting, including the catch-up of a drafter that has not seen the latest tokens.
        verify_seconds: the target's forward, the acceptance, and the text and record of what was emitted.
        policy_seconds: choosing and learning.
        evaluate_seconds: full-information evaluation of all drafters, where this round did it.
        evaluated: tokens that a drafter read in that evaluation, on average; 0 where none took place.
        choices: the target's most probable token after the context and after each of ``drafted``, all from the one
            forward; a greedy run emits no other. Empty where it is not known, of older runs.
        siblings: of a tree, the other tokens proposed in the place of each of ``drafted``; empty for a chain.
        texts: the text of each token of the three that was not emitted.
    """

    index: int
    arm: int | None
    drafter: str | None
    drafted: tuple[int, ...]
    accepted: int
    tokens: tuple[int, ...]
    own: int | None
    text: str
    pieces: tuple[str, ...]
    draft_length: int = 0
    nodes: int = 0
    depth: int = 0
    together: bool = False
    reward: float | None = None
    block_divergence: float | None = None
    probabilities: tuple[float, ...] | None = None
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    policy_seconds: float = 0.0
    evaluate_seconds: float = 0.0
    evaluated: float = 0.0
    choices: tuple[int, ...] = ()
    siblings: tuple[tuple[int, ...], ...] = ()
    texts: Mapping[int, str] = field(default_factory=dict)

    @property
    def emitted(self) -> int:
        """Tokens added to the output."""
        return len(self.tokens)

    @property
    def rejected(self) -> tuple[int, ...]:
        """The drafted tokens that are not in the output."""
        return self.drafted[self.accepted :]

    def text_of(self, token: int) -> str:
        """The text of a token that was drafted, chosen or emitted; that of an emitted part of a character is empty."""
        return self.pieces[self.tokens.index(token)] if token in self.tokens else self.texts.get(token, "")

    @property
    def block_efficiency(self) -> float:
        """BE = accepted ÷ draft length asked for (MetaSD §2.3)."""
        return self.accepted / self.draft_length if self.draft_length else 0.0

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the whole round."""
        return self.draft_seconds + self.verify_seconds + self.policy_seconds + self.evaluate_seconds


@dataclass
class Generation:
    """A finished (or interrupted) generation.

    ``seconds`` and the rates derived from it cover decoding only; ``prefill_seconds`` stands apart. ``turns`` are
    those of the conversation before ``prompt``. ``streams`` is how many texts were decoded at once, at the most: beside
    others it takes longer. ``readers`` are the drafters (arms) that read the prompt during prefill; the others read it
    before their first draft. ``None`` is unknown. ``versions`` are those of drafters that learn, by name: what they
    drafted with. ``prior`` is what past queries had taught, where the policy began with it. ``benched`` says by
    name what happened to drafters that failed: from then on they drafted nothing.
    """

    prompt: str
    policy: str
    drafters: tuple[str, ...]
    prompt_tokens: int
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    rounds: list[Round] = field(default_factory=list, repr=False)
    status: Status = "running"
    prefill_seconds: float = 0.0
    error: str | None = None
    turns: tuple[Turn, ...] = ()
    streams: int = 1
    readers: tuple[int, ...] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    prior: Prior | None = None
    benched: Mapping[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Decoding seconds: the sum over the rounds."""
        return sum(r.seconds for r in self.rounds)

    @property
    def request_seconds(self) -> float:
        """Seconds of the whole request: prefill of target and drafters, routing, and decoding."""
        return self.prefill_seconds + self.seconds

    @property
    def failures(self) -> str:
        """What happened to drafters that failed, a sentence each; empty where none did."""
        return " ".join(f"Drafter {name} failed and drafted no more: {why}." for name, why in self.benched.items())

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens per decoding second; 0 before the first round."""
        return divided(len(self.token_ids), self.seconds) or 0.0

    @property
    def mean_accepted_tokens(self) -> float:
        """MAT: emitted tokens per round, the own token counted (1.00 for autoregressive decoding)."""
        return divided(len(self.token_ids), len(self.rounds)) or 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted ÷ drafted tokens; 0 where nothing was drafted."""
        return divided(sum(r.accepted for r in self.rounds), sum(len(r.drafted) for r in self.rounds)) or 0.0

    @property
    def uncertainty(self) -> float | None:
        """By what share :attr:`seconds` may be off, by how far the target's forwards strayed from each other
        (:func:`~storage.clock.uncertainty`); ``None`` for few rounds."""
        return uncertainty(self.forwards)

    @property
    def forwards(self) -> list[tuple[float, float]]:
        """Nodes and seconds of each forward of the target."""
        return [(r.nodes, r.verify_seconds) for r in self.rounds]

    @property
    def drafter_shares(self) -> dict[str, float]:
        """Share of the output proposed by each drafter; ``"target"`` stands for the own tokens."""
        counts = Counter[str]()
        for r in self.rounds:
            if r.drafter is not None and r.accepted:
                counts[r.drafter] += r.accepted
            if r.own is not None:
                counts[OWN] += 1
        return {name: count / counts.total() for name, count in counts.items()}
