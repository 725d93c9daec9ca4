"""Numbers as visitors and programs send them, checked."""

from __future__ import annotations

from drafters.errors import UserError, quoted
from drafters.sampling import SamplingParams

_TITLES = {"max_new_tokens": "max new tokens", "top_p": "top-p", "top_k": "top-k", "draft_length": "draft length"}
"""What the page calls parameters."""


def make_params(
    max_new_tokens: float | None,
    temperature: float | None,
    top_p: float | None,
    top_k: float | None,
    draft_length: float | None,
) -> SamplingParams:
    """Parameters from the page's numbers.

    Raises:
        UserError: a field is empty or out of range; the message names it.
    """
    try:
        return SamplingParams(
            max_new_tokens=whole_number("max new tokens", max_new_tokens),
            temperature=real_number("temperature", temperature),
            top_p=real_number("top-p", top_p),
            top_k=whole_number("top-k", top_k),
            draft_length=whole_number("draft length", draft_length),
        )
    except UserError:
        raise
    except ValueError as error:
        name, space, rest = str(error).partition(" ")
        raise UserError(f"{_TITLES.get(name, name)}{space}{rest}") from None


def whole_number(name: str, value: float | None) -> int:
    """``value`` as an int.

    Raises:
        UserError: it is missing or has a fraction.
    """
    number = real_number(name, value)
    if not number.is_integer():
        raise UserError(f"{name} must be a whole number, got {quoted(value)}")
    return value if isinstance(value, int) else int(number)  # which has no more than 53 bits of it


def real_number(name: str, value: float | None) -> float:
    """``value`` as a float.

    Raises:
        UserError: it is missing or no number.
    """
    if value is None:
        raise UserError(f"{name} is empty; enter a number")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{name} must be a number, got {quoted(value)}")
    try:
        return float(value)
    except OverflowError:
        raise UserError(f"{name} is too large: {quoted(value)}") from None
