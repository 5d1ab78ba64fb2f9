"""A chat history in the one form that every API parser produces and the template renders.

Knows nothing of any wire format and of no rendering.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A tool's function object as the client declared it: name, description, parameters (a JSON schema, which some
# name input_schema).
ToolSchema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call; `arguments` is JSON text, as the client spelt it or as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a history.

    `role` is system, developer, user, tool, function, assistant or latest_reminder; the template drops any
    other. `tool_calls` belong to an assistant, `tool_call_ids` to a tool result. `raw_dsml` holds the exact
    bytes of the tool-call block that the model sampled, when they are still known. An input that `continues`
    stands in the turn of the input before it, behind no mark of its own.
    """

    role: str
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_ids: tuple[str, ...] = ()
    raw_dsml: bytes | None = None
    continues: bool = False


class ToolSet:
    """The tools a request offers, in the client's order; empty or malformed schemas are tolerated."""

    def __init__(self, schemas: Sequence[ToolSchema]) -> None:
        self.schemas: tuple[ToolSchema, ...] = tuple(schemas)
        self._by_name: dict[str, ToolSchema] = {}
        for schema in self.schemas:
            name = schema.get("name")
            if isinstance(name, str):
                self._by_name.setdefault(name, schema)

    def __len__(self) -> int:
        return len(self.schemas)

    def __iter__(self) -> Iterator[ToolSchema]:
        return iter(self.schemas)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __repr__(self) -> str:
        return f"ToolSet({list(self._by_name)})"

    def names(self) -> frozenset[str]:
        """The names of all tools."""
        return frozenset(self._by_name)

    def properties(self, name: str) -> Mapping[str, Any] | None:
        """A tool's declared properties, key -> schema; None if the tool or its properties are unknown."""
        properties = self._parameters(name).get("properties")
        return properties if isinstance(properties, Mapping) else None

    def required(self, name: str) -> frozenset[str]:
        """The properties that a call of the tool must have; empty when unknown."""
        required = self._parameters(name).get("required")
        if not isinstance(required, list | tuple):
            return frozenset()
        return frozenset(key for key in required if isinstance(key, str))

    def _parameters(self, name: str) -> Mapping[str, Any]:
        tool = self._by_name.get(name, {})
        parameters = tool.get("parameters", tool.get("input_schema"))
        return parameters if isinstance(parameters, Mapping) else {}
