"""The body of `POST /v1/responses`. Spec: chat §5.2 and §5.4.

Unknown fields are skipped and null counts as absent. What changes the meaning of an answer and is not
supported is refused by name.
"""

from __future__ import annotations

from typing import Any, Final

from apps.serve.schema.fields import LenientModel, WholeNumber
from apps.serve.schema.response_items import Items
from shared.errors import RequestError

_SUMMARIES: Final = ("auto", "concise", "detailed")
# What these fields mean would have to be kept between requests.
_STORED: Final = {
    "previous_response_id": "no responses are stored here: send the whole history as input",
    "conversation": "no conversations are stored here: send the whole history as input",
    "prompt": "no prompts are stored here: send instructions and input",
    "background": "no responses are stored here: wait for the answer, or stream it",
}


class ReasoningOptions(LenientModel):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None

    @property
    def shown(self) -> bool:
        """The client wants to see the reasoning."""
        return (self.summary or self.generate_summary) in _SUMMARIES


class TextOptions(LenientModel):
    format: dict[str, Any] | None = None


class ResponsesRequest(LenientModel):
    """Sampling values are taken as sent; their ranges are the sampler's business."""

    model: str | None = None
    input: Items
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: WholeNumber | None = None
    max_tokens: WholeNumber | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    top_logprobs: WholeNumber | None = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None

    @property
    def budget(self) -> int | None:
        """How many tokens the answer may have, if the client says so."""
        return self.max_tokens if self.max_output_tokens is None else self.max_output_tokens

    @property
    def effort(self) -> str | None:
        return None if self.reasoning is None else self.reasoning.effort

    @property
    def shows_reasoning(self) -> bool:
        """The answer has its reasoning in it."""
        return self.reasoning is not None and self.reasoning.shown

    def refuse_unsupported(self) -> None:
        """Fields that would change the answer and that nothing here honours must not be skipped silently."""
        for name, reason in _STORED.items():
            if getattr(self, name) not in (None, False):
                raise RequestError(f"{name}: {reason}", param=name)
        if self.top_logprobs:
            raise RequestError(
                "top_logprobs is not supported here: use /v1/chat/completions", param="top_logprobs"
            )
        if not self.input:
            raise RequestError("input: send at least one item", param="input")
