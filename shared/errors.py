"""The errors that reach a user. Every message is one clear line: what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Sequence


class Ds4Error(Exception):
    """Root of all expected failures; `exit_code` is what the command line exits with."""

    exit_code = 1


class UsageError(Ds4Error):
    """The command line was wrong: unknown value, contradictory flags."""

    exit_code = 2


class ModelFileError(Ds4Error):
    """A model file cannot be used. `problems` lists every mismatch found, not only the first."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class ContextFullError(Ds4Error):
    """The prompt does not fit: `tokens` must be smaller than `context`."""

    def __init__(self, tokens: int, context: int) -> None:
        super().__init__(
            f"the prompt has {tokens} tokens but the context holds {context}: "
            "raise --ctx or shorten the prompt"
        )
        self.tokens = tokens
        self.context = context


class BackendUnavailable(Ds4Error):
    """A backend cannot run here; the message says why and what would make it run."""


class SessionInvalid(Ds4Error):
    """The session holds no valid state: sync a full prompt first."""


class PayloadError(Ds4Error):
    """A saved session payload is unreadable, or was written for another model or a larger context."""


class PayloadDamaged(PayloadError):
    """A saved session payload that no session can load: it is cut off, or contradicts itself."""


class CacheFileError(Ds4Error):
    """A cache file cannot be used."""


class ForeignFile(CacheFileError):
    """Not a cache file of the version and payload ABI that we know. Ignore it and leave it alone."""


class DamagedFile(CacheFileError):
    """A cache file of our version and ABI that failed a check: it can never be used again."""


class StoreUnavailable(Ds4Error):
    """The directory of cache files cannot be used; the message says why and what to do."""


class EngineFault(Ds4Error):
    """The engine failed in mid-work. The session is invalid; the next full sync starts clean."""


class Cancelled(Ds4Error):
    """The caller asked to stop. The session stays valid at the last completed step."""

    exit_code = 130

    def __init__(self, message: str = "cancelled") -> None:
        super().__init__(message)


class LiveStateLost(Ds4Error):
    """The answer that some results of tools belong to is no longer in memory."""

    def __init__(self) -> None:
        super().__init__(
            "the answer that these tool results belong to is no longer live: send the whole history"
        )


class RequestError(Ds4Error):
    """A client's request is wrong. `status` is the HTTP status, `param` the field, `code` a stable word."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
