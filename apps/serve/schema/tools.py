"""Tools and the choice among them, as the bodies of all dialects declare them. Spec: chat §5.4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apps.serve.turn_request import ToolChoice
from shared.errors import RequestError
from shared.text.messages import ToolSchema, ToolSet


def tool_schemas(tools: Sequence[Mapping[str, Any]]) -> list[ToolSchema]:
    """The function objects; a tool that is not wrapped in `function` is taken as it is."""
    schemas = []
    for index, tool in enumerate(tools):
        schema = tool.get("function") if tool.get("type") == "function" and "function" in tool else tool
        if not isinstance(schema, Mapping):
            raise RequestError(f"tools.{index}.function must be an object", param="tools")
        if tool.get("type", "function") == "function" and not isinstance(schema.get("name"), str):
            raise RequestError(f"tools.{index}: the function has no name", param="tools")
        schemas.append(schema)
    return schemas


def openai_tool_choice(choice: str | Mapping[str, Any] | None) -> ToolChoice:
    """The OpenAI family's `tool_choice`: a word, or one tool by its name (wrapped in `function` on chat).

    Raises RequestError for anything else.
    """
    if choice is None or choice == "auto":
        return ToolChoice()
    if choice == "none":
        return ToolChoice("none")
    if choice == "required":
        return ToolChoice("required")
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str):
            return ToolChoice("named", name)
    raise RequestError(
        f"tool_choice {str(choice)[:80]} is not supported: use auto, none, required or a function's name",
        param="tool_choice",
    )


def offered_tools(schemas: Sequence[ToolSchema], choice: ToolChoice) -> ToolSet | None:
    """The tools that the model may call; None if there are none, or none may be called.

    Raises RequestError for a choice that cannot be kept.
    """
    tools = ToolSet(schemas) if schemas and choice.mode != "none" else None
    callable_names = frozenset() if tools is None else tools.names()
    if choice.mode == "required" and not callable_names:
        raise RequestError("tool_choice: a call is required, but no tool is offered", param="tool_choice")
    if choice.mode == "named" and choice.name not in callable_names:
        raise RequestError(f"tool_choice: no tool {str(choice.name)[:80]!r} is offered", param="tool_choice")
    return tools
