"""The earlier turns of a conversation, for pools whose target knows conversations."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from multidraft.records import Turn


def conversation_html(turns: Sequence[Turn], prompt: str = "") -> str:
    """What was said so far.

    Args:
        turns: prompts with their answers.
        prompt: one that is being answered.
    """
    said = [line for turn in turns for line in (_line("You", turn[0]), _line("Answer", turn[1]))]
    if prompt:
        said.append(_line("You", prompt))
    if not said:
        return ""
    return f'<ol class="md-turns" tabindex="0" aria-label="Conversation">{"".join(said)}</ol>'


def _line(who: str, text: str) -> str:
    return f'<li class="md-turn-{who.lower()}"><b>{who}</b><p dir="auto">{escape(text)}</p></li>'
