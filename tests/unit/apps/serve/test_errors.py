"""Error bodies: each dialect's own shape."""

from __future__ import annotations

from apps.serve.errors import Failure
from shared.errors import ContextFullError, RequestError


def test_openai_shape() -> None:
    body = Failure.of(RequestError("bad n", param="n")).body("/v1/chat/completions")
    assert body == {
        "error": {"message": "bad n", "type": "invalid_request_error", "param": "n", "code": None}
    }
    assert Failure(503, "stopping").body("/x")["error"]["type"] == "server_error"


def test_anthropic_shape() -> None:
    assert Failure(404, "none").body("/v1/messages") == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "none"},
    }
    assert Failure(500, "x").body("/v1/messages/count_tokens")["error"]["type"] == "api_error"


def test_a_full_context_names_both_figures_in_text_and_fields() -> None:
    failure = Failure.of(ContextFullError(4097, 4096))
    error = failure.openai()["error"]
    assert failure.status == 400
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (4097, 4096)
    assert "4097" in error["message"]
    assert "4096" in error["message"]
    told = failure.anthropic()["error"]
    # Word for word what clients of this family look for, before they shorten a conversation.
    assert told["message"] == "prompt is too long: 4097 tokens > 4096 maximum"
    assert (told["n_prompt_tokens"], told["n_ctx"]) == (4097, 4096)
