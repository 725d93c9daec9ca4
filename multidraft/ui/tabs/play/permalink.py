"""Links that restore the prompt and the settings of *Play*."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
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
    wrong: tuple[str, ...] = ()
    """Why each setting that cannot be taken stays at its default."""

    @property
    def summary(self) -> str:
        """What of it is taken, and what is not."""
        asked = zip(("prompt", "policy", *SETTINGS), (self.prompt, self.policy, *self.settings), strict=True)
        taken = [NAMES.get(name, name) for name, value in asked if value is not None]
        said = [f"Taken from the link: {', '.join(taken)}." if taken else "Nothing is taken from the link."]
        said += [f"Left at the default: {'; '.join(self.wrong)}."] if self.wrong else []
        return " ".join([*said, "Press Run."])


def read_link(query: Mapping[str, str], pool: Pool, most: int | None = None) -> Link | None:
    """What the page's query parameters ask of *Play*; ``None`` if nothing. Parameters of others are passed over.

    Args:
        most: the server's limit of new tokens.
    """
    if not any(name in query for name in ("prompt", "with_policy", *SETTINGS)):
        return None
    settings: dict[str, float] = {}
    wrong = []
    for name in filter(query.__contains__, SETTINGS):
        try:
            settings[name] = _setting(name, query[name], pool, most)
        except UserError as error:
            wrong.append(str(error))
    values = tuple(map(settings.get, SETTINGS))
    return Link(query.get("prompt"), query.get("with_policy"), values, query.get("with_pool"), tuple(wrong))


def _setting(name: str, text: str, pool: Pool, most: int | None) -> float:
    """One of ``SETTINGS`` as a link spells it.

    Raises:
        UserError: it is not a number, or out of range; the message names it.
    """
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{NAMES.get(name, name)} must be a number, got {text!r:.40}") from None
    if name == "seed":
        return whole_number(name, value)
    check_fields({name: value}, pool, most)
    usual = asdict(SamplingParams(draft_length=pool.draft_length))
    make_params(*({**usual, name: value}[known] for known in SETTINGS[:-1]))
    return value
