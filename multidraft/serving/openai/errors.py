"""What goes wrong, in OpenAI's form: ``{"error": {"message", "type", "param", "code"}}`` and a status code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from drafters.errors import BusyError, ContextWindowError, PolicyError, PromptError, StoppingError, UserError

TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 500: "server_error"}
"""By status code; others from 500 on are a ``server_error`` too, others below an ``invalid_request_error``."""

TOLD: tuple[tuple[type[UserError], int, str | None, str | None], ...] = (
    (StoppingError, 503, None, "overloaded"),
    (BusyError, 429, None, "rate_limit_exceeded"),
    (ContextWindowError, 400, "prompt", "context_length_exceeded"),
    (PromptError, 400, "prompt", None),
    (PolicyError, 400, "policy", None),
    (UserError, 400, None, None),
)
"""Status code, field and code of errors that users may read; the first kind that fits."""

PATHS = "/v1/chat/completions, /v1/completions and /v1/models"

ASTRAY = ("/chat/completions", "/completions", "/models")
"""Where clients ask whose base URL lacks the ``/v1``."""

RETRY_SECONDS = 1
"""When to try again what cannot be done now."""


class ApiError(Exception):
    """An answer that is an error.

    Args:
        status: the HTTP status code.
        param: the field that is wrong.
        code: what programs tell errors by.
        headers: further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers or {}

    @classmethod
    def of(cls, error: Exception) -> ApiError:
        """The same of another error, which users may read."""
        if isinstance(error, ApiError):
            return error
        if isinstance(error, HTTPException):
            return cls(error.status_code, error.detail, headers=error.headers)
        for kind, status, param, code in TOLD:
            if isinstance(error, kind):
                return cls(status, str(error), param, code)
        return cls(500, "the server failed; see its log")

    def form(self) -> dict[str, Any]:
        """The body of the answer."""
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The answer itself."""
        headers = dict(self.headers)
        if self.status in (429, 503):
            headers["Retry-After"] = str(RETRY_SECONDS)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if self.status == 413:  # the rest of the body is not read
            headers["Connection"] = "close"
        return JSONResponse(self.form(), self.status, headers)


def refusal(path: str, status: int, said: str) -> JSONResponse:
    """The answer to a request that is refused before anything reads it, in the form that is usual at its path."""
    if path.startswith("/v1/"):
        return ApiError(status, said).response()
    return JSONResponse({"detail": said}, status, {"Connection": "close"} if status == 413 else None)


async def answer_astray(request: Request) -> JSONResponse:
    """Where the ``/v1`` of an address is missing."""
    said = f"there is no {request.url.path} here, only /v1{request.url.path}: the base URL of clients ends in /v1"
    return ApiError(404, said).response()


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler of exceptions: paths and methods that there are not."""
    found = ApiError.of(error)
    if found.status == 404:
        found.message = f"there is no {request.url.path} here, only {PATHS}; the base URL of clients ends in /v1"
    if found.status == 405:
        found.message = f"{request.url.path} takes {found.headers['Allow']}, not {request.method}"
    return found.response()
