"""Error bodies in each dialect's own shape.

OpenAI family: `{"error": {"message", "type", ...}}`; Anthropic (`/v1/messages`):
`{"type": "error", "error": {"type", "message", ...}}`. Knows no endpoint beyond that prefix.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from shared.errors import ContextFullError, RequestError

_ANTHROPIC_PREFIX = "/v1/messages"
_CONTEXT_CODE = "context_length_exceeded"
_OVERLOADED_CODE = "server_overloaded"
_OPENAI_TYPES = {429: "rate_limit_error"}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class ClientLeft(Exception):
    """The client closed its connection, or stopped reading; there is nobody to answer."""


class Refused(Exception):
    """A request is answered by `failure` and nothing else."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request was not answered, in words for the client, and in how many seconds to `retry_after`."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    extra: dict[str, int] = field(default_factory=dict)
    retry_after: int | None = None

    @classmethod
    def of(cls, error: RequestError | ContextFullError, *, param: str | None = None) -> Failure:
        if isinstance(error, ContextFullError):
            return cls(
                400,
                f"prompt is too long: {error.tokens} tokens, but the maximum context length is "
                f"{error.context} tokens",
                param=param or "messages",
                code=_CONTEXT_CODE,
                extra={"n_prompt_tokens": error.tokens, "n_ctx": error.context},
            )
        return cls(error.status, str(error), error.param, error.code)

    def status_at(self, path: str) -> int:
        """The status for the endpoint at `path`."""
        busy = self.code == _OVERLOADED_CODE and path.startswith(_ANTHROPIC_PREFIX)
        return 529 if busy else self.status

    @property
    def headers(self) -> dict[str, str]:
        """What the reply's headers say of it."""
        return {} if self.retry_after is None else {"retry-after": str(self.retry_after)}

    def body(self, path: str) -> dict[str, Any]:
        """The JSON body for the endpoint at `path`."""
        return self.anthropic() if path.startswith(_ANTHROPIC_PREFIX) else self.openai()

    def openai(self) -> dict[str, Any]:
        default = "server_error" if self.status >= 500 else "invalid_request_error"
        error: dict[str, Any] = {
            "message": self.message,
            "type": _OPENAI_TYPES.get(self.status, default),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error | self.extra}

    def anthropic(self) -> dict[str, Any]:
        default = "api_error" if self.status >= 500 else "invalid_request_error"
        kind = _ANTHROPIC_TYPES.get(self.status_at(_ANTHROPIC_PREFIX), default)
        message = self.message
        if self.code == _CONTEXT_CODE:
            # In these words clients of this family recognise that they have to shorten the conversation.
            message = "prompt is too long: {n_prompt_tokens} tokens > {n_ctx} maximum".format_map(self.extra)
        return {"type": "error", "error": {"type": kind, "message": message} | self.extra}


STOPPING: Final = Failure(503, "the server is stopping", code="server_stopping")


def overloaded(seconds: int) -> Failure:
    """Every place is taken; in so many seconds there should be one."""
    message = f"too many requests wait already: try again in {seconds} seconds"
    return Failure(429, message, code=_OVERLOADED_CODE, retry_after=seconds)
