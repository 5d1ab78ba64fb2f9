"""Tools as responses bodies declare them, and how calls of them are written in an answer. Spec: chat §5.4.

The model knows functions only. Every other kind of tool that a client runs itself is offered as one, and its
calls go back in the shape that the client knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from apps.serve.schema.tools import openai_tool_choice, tool_schemas
from apps.serve.turn_request import ToolChoice
from shared.errors import RequestError
from shared.text.messages import ToolSchema

WireKind = Literal["function", "custom", "local_shell", "tool_search"]

_TOOL_SEARCH: Final = "tool_search"
_LOCAL_SHELL: Final[ToolSchema] = {
    "type": "function",
    "name": "local_shell",
    "description": "Runs a command on the user's machine and returns its output.",
    "parameters": {
        "type": "object",
        "properties": {
            "command": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The program and its arguments.",
            },
            "working_directory": {"type": "string"},
            "timeout_ms": {"type": "integer"},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["command"],
    },
}


@dataclass(frozen=True, slots=True)
class WireTool:
    """A tool as its client knows it."""

    kind: WireKind
    name: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class DeclaredTools:
    """What the model is offered, and for its names what the client calls them."""

    schemas: list[ToolSchema]
    wires: Mapping[str, WireTool]


def declared_tools(tools: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> DeclaredTools:
    """All `tools` of a body, and those that searches in its history `found`.

    Raises RequestError for a tool that cannot be called by any name.
    """
    schemas: list[ToolSchema] = []
    wires: dict[str, WireTool] = {}
    for tool in (*tools, *found):
        for schema, wire in _offered(tool):
            if wire is None:
                schemas.append(schema)
            elif (name := str(schema["name"])) not in wires:
                wires[name] = wire
                schemas.append(schema)
    return DeclaredTools(schemas, wires)


def responses_tool_choice(choice: str | Mapping[str, Any] | None) -> ToolChoice:
    """A word, or one tool: by its name, its name in a namespace, or its type if there is only one such tool.

    Raises RequestError for anything else.
    """
    if isinstance(choice, Mapping):
        name, namespace = choice.get("name"), choice.get("namespace")
        if choice.get("type") in ("local_shell", _TOOL_SEARCH):
            return ToolChoice("named", str(choice["type"]))
        if isinstance(name, str) and isinstance(namespace, str):
            return ToolChoice("named", namespace + name)
    return openai_tool_choice(choice)


def _offered(tool: Mapping[str, Any]) -> Iterator[tuple[ToolSchema, WireTool | None]]:
    """What one declared tool offers; without a wire form where nobody here knows how it is called."""
    kind = tool.get("type", "function")
    if kind == "namespace":
        yield from _namespace(tool)
    elif kind == "function":
        (schema,) = tool_schemas([tool])
        yield schema, WireTool("function", str(schema["name"]))
    elif kind == "custom":
        yield _free_text(tool), WireTool("custom", _name(tool))
    elif kind == "local_shell":
        yield _LOCAL_SHELL, WireTool("local_shell", "local_shell")
    elif kind == _TOOL_SEARCH:
        schema = {key: value for key, value in tool.items() if key != "execution"}
        yield schema | {"type": "function", "name": _TOOL_SEARCH}, WireTool("tool_search", _TOOL_SEARCH)
    else:
        # Run by a service that is not here: the model is told of it as the client put it.
        yield tool, None


def _namespace(tool: Mapping[str, Any]) -> Iterator[tuple[ToolSchema, WireTool | None]]:
    """The tools in a namespace, under names that begin with its own."""
    namespace, members = _name(tool), tool.get("tools")
    if not isinstance(members, list) or not all(isinstance(member, Mapping) for member in members):
        raise RequestError(f"tools: the namespace {namespace[:80]!r} has no array of tools", param="tools")
    for member in members:
        if member.get("type") == "namespace":
            raise RequestError(f"tools: the namespace {namespace[:80]!r} holds another one", param="tools")
        for schema, wire in _offered(member):
            if wire is None:
                yield schema, None
            else:
                flat = {**schema, "name": namespace + wire.name}
                yield flat, WireTool(wire.kind, wire.name, namespace)


def _free_text(tool: Mapping[str, Any]) -> ToolSchema:
    """A tool whose input is a text of its own format, as a function with that text as its one argument."""
    description = str(tool.get("description") or "")
    form = tool.get("format")
    if isinstance(form, Mapping) and isinstance(grammar := form.get("definition"), str):
        syntax = str(form.get("syntax") or "")
        description = f"{description}\n\nThe input follows this {syntax} grammar:\n{grammar}".strip()
    return {
        "type": "function",
        "name": _name(tool),
        "description": description,
        "parameters": {
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
        },
    }


def _name(tool: Mapping[str, Any]) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(f"tools: a tool of type {str(tool.get('type'))[:50]!r} has no name", param="tools")
    return name
