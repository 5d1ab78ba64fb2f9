"""The body of `POST /v1/chat/completions`. Spec: chat §5.2 and §5.4.

Unknown fields are skipped and null counts as absent. What changes the meaning of an answer and is not
supported is refused by name.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from apps.serve.schema.fields import LenientModel, WholeNumber, json_text
from apps.serve.schema.openai_request import OpenAiRequest

_UNSUPPORTED_PARTS = {
    "image_url": "images",
    "image": "images",
    "input_image": "images",
    "input_audio": "audio",
    "audio": "audio",
    "video_url": "video",
    "file": "files",
    "input_file": "files",
}


def _joined_text(content: Any) -> Any:
    """A content array becomes the concatenation of its texts; other parts without meaning are skipped."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return content
    texts = []
    for index, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            raise ValueError(f"part {index} must be an object")
        kind = part.get("type", "text")
        if not isinstance(kind, str):
            raise ValueError(f"the type of part {index} must be a string")
        if kind in _UNSUPPORTED_PARTS:
            raise ValueError(f"part {index} has type {kind}: this model reads no {_UNSUPPORTED_PARTS[kind]}")
        text = part.get("text")
        if kind == "text":
            if not isinstance(text, str):
                raise ValueError(f"part {index} has no text")
            texts.append(text)
    return "".join(texts)


Content = Annotated[str, BeforeValidator(_joined_text)]


class FunctionCall(LenientModel):
    name: str | None = None
    arguments: Any = None

    @property
    def arguments_text(self) -> str | None:
        """Arguments as JSON text: clients send text, or the value itself."""
        if self.arguments is None or isinstance(self.arguments, str):
            return self.arguments
        return json_text(self.arguments)


class AssistantToolCall(LenientModel):
    id: str | None = None
    function: FunctionCall | None = None


class ChatMessage(LenientModel):
    role: str = "user"
    content: Content = ""
    reasoning_content: str | None = None
    tool_calls: list[AssistantToolCall] | None = None
    tool_call_id: str | None = None

    @field_validator("role", mode="before")
    @classmethod
    def _default_role(cls, role: Any) -> Any:
        return "user" if role is None else role


class ChatRequest(OpenAiRequest):
    messages: list[ChatMessage]
    max_completion_tokens: WholeNumber | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[WholeNumber, Field(ge=0, le=20)] | None = None
    response_format: dict[str, Any] | None = None

    @property
    def budget(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def alternatives(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None
