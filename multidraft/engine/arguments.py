"""What a generation is asked for, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from drafters.arguments import texts_of, whole, whole_numbers
from drafters.errors import PolicyError, PromptError, UserError, quoted
from drafters.sampling import SamplingParams
from multidraft.engine.output import Output
from multidraft.policies import Policy, check_live, make_policy
from storage.records import Turn

if TYPE_CHECKING:
    from drafters.pool import Pool


def policy_for(pool: Pool, policy: str | Policy, seed: int = 0) -> Policy:
    """The policy of a spec, or the given one, with what ``pool`` has for it.

    Raises:
        PolicyError: an unknown policy, a setting it cannot take, or one that this pool cannot play.
    """
    names = pool.drafter_names
    player = policy if isinstance(policy, Policy) else make_policy(policy, names, seed)
    if player.arm_count not in (0, len(names)):
        raise PolicyError(
            f"the policy was made for {player.arm_count} drafters, but pool {pool.name!r} has {len(names)}"
        )
    check_live(player)
    if player.needs_route and pool.router is None:
        raise PolicyError(
            f"policy {player.name!r} needs a router, and pool {pool.name!r} has none; its card can name one"
        )
    return player


def read_seed(seed: object) -> int:
    """A seed, which may be any whole number, NumPy's among them; raises :class:`UserError` for one that is none."""
    if (number := whole(seed)) is None or not 0 <= number < 2**63:
        raise UserError(f"the seed must be a whole number from 0 to 2^63 - 1, got {quoted(seed)}")
    return number


def check_pool(pool: object) -> None:
    """Raise :class:`UserError` for the name of a pool, or anything else, in place of one."""
    if isinstance(pool, str | Path):
        raise UserError(f"a pool is needed, not its name: multidraft.load_pool({str(pool)!r})")
    if not hasattr(pool, "target"):
        raise UserError(f"a pool is needed, got {type(pool).__name__}: multidraft.load_pool('pocket') loads one")


def check_settings(params: object, output: object) -> None:
    """Raise :class:`UserError` for settings that are no :class:`~drafters.sampling.SamplingParams` or no
    :class:`~multidraft.engine.output.Output`."""
    for name, given, kind, example in (
        ("params", params, SamplingParams, "max_new_tokens=64"),
        ("output", output, Output, "stop=('\\n\\n',)"),
    ):
        if not isinstance(given, kind):
            kind_name = kind.__name__
            raise UserError(f"{name} must be {kind_name}, such as {kind_name}({example}), got {type(given).__name__}")


def read_prompt(pool: Pool, prompt: str | Sequence[int], turns: Sequence[Turn]) -> tuple[str, list[int]]:
    """Text and token ids of a prompt that is either."""
    pairs = isinstance(turns, Sequence) and not isinstance(turns, str | bytes)
    if not (pairs and all(isinstance(turn, list | tuple) and len(turn) == 2 and texts_of(turn) for turn in turns)):
        raise PromptError(
            f"turns must be pairs of an earlier prompt and its answer, such as [('Hello', 'Hi!')], got {quoted(turns)}"
        )
    if isinstance(prompt, str):
        check_text(prompt)
        return prompt, pool.encode(prompt, turns)
    if turns:
        raise PromptError("earlier turns need a prompt that is a text, not token ids")
    if (ids := whole_numbers(prompt)) is None:
        several = isinstance(prompt, list | tuple) and all(isinstance(one, Sequence) for one in prompt)
        hint = "; generate_batch decodes several prompts" if several else ""
        raise PromptError(f"the prompt must be a text or a list of token ids, got {type(prompt).__name__}{hint}")
    check_ids(pool, ids)
    return pool.decode(ids), ids


def continued(pool: Pool, prompt: str | Sequence[int], ids: Sequence[int], output: Output) -> Sequence[int]:
    """The ``ids`` of a prompt where its answer is one text with it: none where it is a question in chat form."""
    return () if output.anew or (isinstance(prompt, str) and pool.tokenizer.chat_template) else ids


def check_text(prompt: str) -> None:
    """Raise a :class:`PromptError` where a prompt is empty, or holds what is no character."""
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise PromptError(f"character {error.start + 1} of the prompt is half of one (a lone surrogate)") from None
    if not prompt.strip():
        raise PromptError("the prompt is empty; type a few words for the target to answer")


def check_ids(pool: Pool, ids: Sequence[int]) -> None:
    """Raise a :class:`PromptError` where a prompt of token ids is empty, or holds one that the target does not have."""
    if not ids:
        raise PromptError("the prompt is empty; give at least one token id")
    if outside := [token for token in ids if not 0 <= token < pool.target.vocab_size]:
        raise PromptError(f"token id {outside[0]} is not one of the target's: 0 to {pool.target.vocab_size - 1:,}")
