"""The body of `POST /v1/messages` and of its `count_tokens`. Spec: chat §5.2 and §5.4.

Unknown fields and blocks are skipped and null counts as absent. What changes the meaning of an answer and is
not supported is refused by name.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Discriminator, Tag, model_validator

from apps.serve.schema.fields import LenientModel, StopStrings, WholeNumber


class TextBlock(LenientModel):
    text: str


class ThinkingBlock(LenientModel):
    """Reasoning that comes back. Its signature says nothing that is checked here."""

    thinking: str | None = None


class ToolUseBlock(LenientModel):
    id: str
    name: str
    input: dict[str, Any] | None = None


class ToolResultBlock(LenientModel):
    tool_use_id: str
    content: Blocks = ()


class ImageBlock(LenientModel):
    """Refused: it changes what is asked."""

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, block: Any) -> Any:
        raise ValueError("this model reads no images")


class OtherBlock(LenientModel):
    """Nothing that the model could be told: documents, hidden reasoning, results of other servers."""


_KINDS: Final = ("text", "thinking", "tool_use", "tool_result", "image")


def _kind(block: Any) -> str:
    kind = block.get("type", "text")
    return kind if kind in _KINDS else "other"


def _blocks(content: Any) -> Any:
    """A text is one block."""
    if content is None:
        return ()
    if isinstance(content, str):
        return ({"text": content},)
    if not isinstance(content, list):
        raise ValueError("must be a string or an array of blocks")
    for index, block in enumerate(content):
        if not isinstance(block, dict):
            raise ValueError(f"block {index} must be an object")
        if not isinstance(block.get("type", "text"), str):
            raise ValueError(f"the type of block {index} must be a string")
    return tuple(content)


Block = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Annotated[ToolResultBlock, Tag("tool_result")]
    | Annotated[ImageBlock, Tag("image")]
    | Annotated[OtherBlock, Tag("other")],
    Discriminator(_kind),
]
Blocks = Annotated[tuple[Block, ...], BeforeValidator(_blocks)]


class InputMessage(LenientModel):
    role: str
    content: Blocks = ()


class OutputConfig(LenientModel):
    effort: str | None = None
    format: Any = None


class Choice(LenientModel):
    type: str
    name: str | None = None


class MessagesRequest(LenientModel):
    """Sampling values are taken as sent; their ranges are the sampler's business."""

    model: str | None = None
    messages: list[InputMessage]
    system: Blocks = ()
    stream: bool | None = None
    max_tokens: WholeNumber | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: WholeNumber | None = None
    stop_sequences: StopStrings = ()
    tools: list[dict[str, Any]] | None = None
    tool_choice: Choice | None = None
    thinking: Any = None
    reasoning_effort: str | None = None
    output_config: OutputConfig | None = None
    output_format: Any = None
    mcp_servers: list[Any] | None = None

    @property
    def effort(self) -> str | None:
        """How hard to think, under either of its names."""
        asked = self.output_config.effort if self.output_config is not None else None
        return asked if asked is not None else self.reasoning_effort

    @property
    def format(self) -> Any:
        """The form that the answer must have, under either of its names."""
        asked = self.output_config.format if self.output_config is not None else None
        return asked if asked is not None else self.output_format


ToolResultBlock.model_rebuild()
