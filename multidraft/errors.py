"""Errors that a user can mend: each message says what is wrong, where, and what to do."""


class UserError(ValueError):
    """Base of all errors caused by input; shown without a traceback."""


def told(error: BaseException) -> str:
    """What is said of an error: its message; its type and its notes too, unless it was raised for a user to read."""
    if isinstance(error, UserError):
        return str(error)
    message = ": ".join(filter(None, (type(error).__name__, str(error))))
    return " ".join([message, *(f"({note})" for note in getattr(error, "__notes__", ()))])


class PromptError(UserError):
    """A prompt that cannot be run, e.g. an empty one."""


class ContextWindowError(PromptError):
    """A prompt that does not fit the target's context window."""


class PolicyError(UserError):
    """A policy spec that names no policy, or settings it cannot take; or a policy that misbehaves."""


class PoolError(UserError):
    """A pool that is unknown, incomplete or corrupt."""


class SuiteError(UserError):
    """A file of prompts that cannot be read."""


class TrainingError(UserError):
    """Training that cannot begin, or cannot go on."""
