"""The items of a responses input: what was said, thought, called and returned so far. Spec: chat §5.4.

Only shapes: what they mean for the history is `responses_history`. An item that nothing here understands is
refused by name, never left out silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Tag, field_validator, model_validator

from apps.serve.schema.fields import LenientModel, json_text

_TEXT_PARTS: Final = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_ROLES: Final = ("user", "assistant", "system", "developer", "latest_reminder")
_BOOKKEEPING: Final = ("compaction", "context_compaction")
_CALLS: Final = (
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "web_search_call",
    "tool_search_call",
    "image_generation_call",
)
_RESULTS: Final = (*(f"{call}_output" for call in _CALLS), "tool_search_output")
_NAMED_CALLS: Final = ("function_call", "custom_tool_call")


def _texts(content: Any) -> Any:
    """A text, or an array of text parts, as a tuple of texts."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (content,)
    if not isinstance(content, list):
        raise ValueError("must be a string or an array of parts")
    return tuple(_part_text(index, part) for index, part in enumerate(content))


def _part_text(index: int, part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise ValueError(f"part {index} must be an object or a string")
    kind = part.get("type", "text")
    if kind not in _TEXT_PARTS:
        raise ValueError(f"part {index} has type {str(kind)[:50]!r}: this model reads text only")
    if not isinstance(text := part.get("text"), str):
        raise ValueError(f"part {index} has no text")
    return text


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]


class Item(LenientModel):
    """What all items have: a part of a turn that was not finished cannot be gone on from."""

    status: str | None = None

    @field_validator("status")
    @classmethod
    def _only_completed(cls, status: str | None) -> str | None:
        if status not in (None, "completed"):
            raise ValueError(f"is {status[:50]!r}: only completed items can be sent back")
        return status


class MessageItem(Item):
    role: str = "user"
    content: Texts = ()

    @field_validator("role", mode="before")
    @classmethod
    def _known_role(cls, role: Any) -> Any:
        if role is None:
            return "user"
        if role not in _ROLES:
            raise ValueError(f"{str(role)[:50]!r} is not one of {', '.join(_ROLES[:4])}")
        return role


class ReasoningItem(Item):
    """Reasoning as it was shown. What is only there in encrypted form cannot be read and is skipped."""

    summary: Texts = ()
    content: Texts = ()

    @property
    def text(self) -> str:
        return "\n".join((*self.summary, *self.content))


class CallItem(Item):
    """A call of any kind of tool that the client, or a service, ran."""

    type: str
    call_id: str | None = None
    id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = None
    input: Any = None
    action: Any = None

    @model_validator(mode="after")
    def _has_a_name(self) -> CallItem:
        if self.type in _NAMED_CALLS and not self.name:
            raise ValueError("the call has no name")
        return self

    @property
    def called(self) -> str:
        """The id that its result names."""
        return self.call_id or self.id or ""

    @property
    def tool(self) -> str:
        """The name of the tool as the model knows it."""
        if self.type in _NAMED_CALLS:
            return (self.namespace or "") + (self.name or "")
        return {"local_shell_call": "local_shell", "tool_search_call": "tool_search"}.get(
            self.type, self.type
        )

    @property
    def arguments_text(self) -> str:
        """Its arguments as the JSON text that the model wrote for them."""
        if self.type == "custom_tool_call":
            return json_text({"input": self.input if isinstance(self.input, str) else json_text(self.input)})
        values: tuple[Any, ...] = (self.action, self.arguments, self.input)
        value: Any = next((value for value in values if value is not None), {})
        if self.type == "local_shell_call" and isinstance(value, Mapping):
            value = {key: part for key, part in value.items() if key != "type" and part is not None}
        return value if isinstance(value, str) else json_text(value)


class ResultItem(Item):
    """What a call came to. Found tools can be called from then on."""

    call_id: str | None = None
    id: str | None = None
    output: Any = None
    result: Any = None
    tools: list[dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _names_its_call(self) -> ResultItem:
        if not self.called:
            raise ValueError("the result has no call_id")
        return self

    @field_validator("output", mode="before")
    @classmethod
    def _readable(cls, output: Any) -> Any:
        """Parts of a message become their text; any other JSON stays what it is."""
        if isinstance(output, list) and output and all(_is_part(part) for part in output):
            return "".join(_texts(output))
        return output

    @property
    def called(self) -> str:
        """The id of the call."""
        return self.call_id or self.id or ""

    @property
    def text(self) -> str:
        values: tuple[Any, ...] = (self.output, self.result, self.tools)
        value: Any = next((value for value in values if value is not None), "")
        return value if isinstance(value, str) else json_text(value)


class BookkeepingItem(Item):
    """Of no meaning to the model."""


class UnknownItem(LenientModel):
    """Refused by its name."""

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, item: Any) -> Any:
        kind = str(item.get("type"))[:50]
        hint = ": nothing is stored here, send the item itself" if kind == "item_reference" else ""
        raise ValueError(f"items of type {kind!r} are not supported{hint}")


ItemKind = Literal["message", "reasoning", "call", "result", "bookkeeping", "unknown"]


def _kind(item: Any) -> ItemKind:
    kind = item.get("type")
    if kind is None or kind == "message":
        return "message"
    if kind == "reasoning":
        return "reasoning"
    if kind in _CALLS:
        return "call"
    if kind in _RESULTS:
        return "result"
    return "bookkeeping" if kind in _BOOKKEEPING else "unknown"


def _items(value: Any) -> Any:
    """A text is one message of the user."""
    if isinstance(value, str):
        return ({"content": value},)
    if not isinstance(value, list):
        raise ValueError("must be a string or an array of items")
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise ValueError(f"item {index} must be an object")
    return tuple(value)


AnyItem = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[CallItem, Tag("call")]
    | Annotated[ResultItem, Tag("result")]
    | Annotated[BookkeepingItem, Tag("bookkeeping")]
    | Annotated[UnknownItem, Tag("unknown")],
    Discriminator(_kind),
]
Items = Annotated[tuple[AnyItem, ...], BeforeValidator(_items)]


def _is_part(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return isinstance(kind, str) and (kind in _TEXT_PARTS or kind.startswith("input_"))
