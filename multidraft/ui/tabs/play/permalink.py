"""Links that restore the prompt and the settings of *Play*."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from drafters.errors import UserError
from drafters.pool import Pool
from drafters.sampling import SamplingParams
from multidraft.bench.comparison import NAMES
from multidraft.service.inputs import make_params, whole_number
from multidraft.ui.widgets.controls import LONGEST_LINK, SETTINGS, check_fields

COPY_LINK = f"(...values) => copyLink({LONGEST_LINK}, ...values)"
"""Script of the button. It is called with the button's text, the status line, prompt, policy and the settings, and
returns the first two."""


class Link(NamedTuple):
    """What a link asks for; ``None`` where it says nothing."""

    prompt: str | None
    policy: str | None
    """A spec; ``with_policy`` in the address, where ``policy`` filters the dashboard."""
    settings: tuple[float | None, ...]
    """In the order of ``SETTINGS``."""
    pool: str | None
    """The name of the one that was loaded when the link was made."""

    @property
    def named(self) -> list[str]:
        """What it says something of, in the page's words."""
        asked = zip(("prompt", "policy", *SETTINGS), (self.prompt, self.policy, *self.settings), strict=True)
        return [NAMES.get(name, name) for name, value in asked if value is not None]


def read_link(query: Mapping[str, str], pool: Pool, most: int | None = None) -> Link | None:
    """What the page's query parameters ask of *Play*; ``None`` if nothing. Parameters of others are passed over.

    Args:
        most: the server's limit of new tokens.

    Raises:
        UserError: a setting is not a number, or out of range; the message names it.
    """
    if not any(name in query for name in ("prompt", "with_policy", *SETTINGS)):
        return None
    settings = {name: _number(name, query[name]) for name in SETTINGS if name in query}
    check_fields(settings, pool, most)
    usual = SamplingParams(draft_length=pool.draft_length)
    make_params(*(settings.get(name, getattr(usual, name)) for name in SETTINGS[:-1]))
    whole_number("seed", settings.get("seed", 0))
    values = tuple(settings.get(name) for name in SETTINGS)
    return Link(query.get("prompt"), query.get("with_policy"), values, query.get("with_pool"))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{NAMES.get(name, name)} must be a number, got {text!r:.40}") from None
