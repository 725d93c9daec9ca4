"""How prompts are put to a target, and which tokens end its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

Turn = tuple[str, str]
"""An earlier turn of a conversation: the prompt and its answer."""


def chat_ids(
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    turns: Sequence[Turn] = (),
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> list[int]:
    """Token ids of a prompt in the tokenizer's chat form; as it stands where there is no chat template.

    Args:
        turns: the earlier prompts of the conversation with their answers.
        settings: what the template is given besides, e.g. ``enable_thinking``.
    """
    quiet = {"verbose": False}  # a prompt beyond the window is refused later on, not warned of
    if not tokenizer.chat_template:
        return list(tokenizer(prompt, **quiet)["input_ids"])
    messages = []
    for asked, answered in turns:
        messages.append({"role": "user", "content": asked})
        messages.append({"role": "assistant", "content": answered})
    messages.append({"role": "user", "content": prompt})
    return list(
        tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False, tokenizer_kwargs=quiet, **settings
        )
    )


def end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Tokens that end an answer, by the tokenizer and by the model's ``generation_config``."""
    ids: set[int] = set()
    for value in (tokenizer.eos_token_id, model.generation_config.eos_token_id):
        ids.update(value if isinstance(value, list) else [] if value is None else [value])
    return ids
