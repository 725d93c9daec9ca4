"""Prompts of no task that the target knows, as far as its router can tell: results warn of their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from textwrap import shorten

UNFAMILIAR = (
    "The prompt looks unlike the tasks of this pool: its answer may make no sense, and nonsense can be easy to guess, "
    "so its figures tell little."
)
"""What is said of an answer of a target that knows certain tasks only, to a prompt of none of them."""

LOOPS = (
    "The answer ends by repeating itself, as where the model does not know what to say: its figures tell little of "
    "other texts."
)
"""What is said of an answer that ends in a loop (``bench.measured_verdict.loops``)."""

Fits = Callable[[str, str], bool]
"""Whether the target of a card, by its hash, knows what a prompt asks, as far as that can be told."""

MOST_JUDGED = 200
"""Of a batch, so many prompts are looked at."""

MOST_NAMED = 5
"""Of those, so many are named."""


def assume_fits(card_hash: str, prompt: str) -> bool:
    """Where nothing is known of that."""
    return True


def warning(fits: Fits, card_hash: str, prompts: Iterable[str]) -> str:
    """What is said of a result on these prompts; empty where all are of known tasks."""
    judged = list(islice(dict.fromkeys(prompts), MOST_JUDGED))
    odd = [prompt for prompt in judged if not fits(card_hash, prompt)]
    if not odd or len(judged) == 1:
        return UNFAMILIAR if odd else ""
    look, answers = ("looks", "its answer") if len(odd) == 1 else ("look", "their answers")
    of = f"{len(odd)} of the {'first ' if len(judged) == MOST_JUDGED else ''}{len(judged)} prompts"
    named = ", ".join(f"“{shorten(prompt, 40, placeholder='…')}”" for prompt in odd[:MOST_NAMED])
    more = f" and {len(odd) - MOST_NAMED} more" if odd[MOST_NAMED:] else ""
    return (
        f"{of} {look} unlike the tasks of this pool: {answers} may make no sense, and nonsense can be easy to "
        f"guess. {'It is' if len(odd) == 1 else 'They are'} {named}{more}."
    )


def below_title(warning: str, subtitle: str) -> str:
    """Below the title of a picture: the warning goes first, as the end may be cut."""
    if warning == UNFAMILIAR:
        return f"The prompt looks unlike the tasks of this pool. {subtitle}"
    return f"{warning.partition(':')[0]}. {subtitle}" if warning else subtitle
