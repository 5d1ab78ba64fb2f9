"""The output items of a response, in the shapes that their clients know. Spec: chat §5.5 and §5.6."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from apps.serve.encode.arguments import arguments_object
from apps.serve.schema.responses_tools import WireKind, WireTool

ItemStatus = Literal["in_progress", "completed", "incomplete"]
# A fresh id that begins with a prefix.
NewId = Callable[[str], str]

_PREFIXES: Final[dict[WireKind, str]] = {
    "function": "fc_",
    "custom": "ctc_",
    "local_shell": "lsh_",
    "tool_search": "tsc_",
}


def random_id(prefix: str) -> str:
    """An object id."""
    return prefix + secrets.token_hex(12)


def reasoning_item(item_id: str, text: str | None, status: ItemStatus) -> dict[str, Any]:
    """Reasoning as its summary; without one while the text is still to come."""
    summary = [] if text is None else [summary_part(text)]
    return {"id": item_id, "type": "reasoning", "status": status, "summary": summary}


def message_item(item_id: str, text: str | None, status: ItemStatus) -> dict[str, Any]:
    """An answer's text; without a part while the text is still to come."""
    content = [] if text is None else [text_part(text)]
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": content}


def summary_part(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


@dataclass(frozen=True, slots=True)
class CallItem:
    """One call, as the client of `wire` knows it."""

    id: str
    call_id: str
    wire: WireTool

    @classmethod
    def of(cls, call_id: str, name: str, wires: Mapping[str, WireTool], new_id: NewId) -> CallItem:
        """A call of the tool that the model knows as `name`, declared or not."""
        wire = wires.get(name, WireTool("function", name))
        return cls(new_id(_PREFIXES[wire.kind]), call_id, wire)

    @property
    def named(self) -> dict[str, Any]:
        """The name that the client gave the tool."""
        name: dict[str, Any] = {"name": self.wire.name}
        return name if self.wire.namespace is None else name | {"namespace": self.wire.namespace}

    def body(self, arguments: str | None, status: ItemStatus) -> dict[str, Any]:
        """The item; `arguments` is JSON text, None while it is still to come."""
        head = {"id": self.id, "status": status, "call_id": self.call_id}
        match self.wire.kind:
            case "function":
                return head | {"type": "function_call", **self.named, "arguments": arguments or ""}
            case "custom":
                text = "" if arguments is None else free_text(arguments)
                return head | {"type": "custom_tool_call", **self.named, "input": text}
            case "local_shell":
                return head | {"type": "local_shell_call", "action": _shell_action(_members(arguments))}
            case "tool_search":
                members = _members(arguments)
                return head | {"type": "tool_search_call", "execution": "client", "arguments": members}


def free_text(arguments: str) -> str:
    """The one text that a tool of free text is called with; if the model named it otherwise, that one."""
    members = _members(arguments)
    values = [members["input"]] if "input" in members else list(members.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return arguments


def _shell_action(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A command line in one piece is one for a shell."""
    command = arguments.get("command", [])
    if isinstance(command, str):
        command = ["bash", "-lc", command]
    action: dict[str, Any] = {"type": "exec", "command": [], "env": {}} | dict(arguments)
    return action | {"command": [str(part) for part in command] if isinstance(command, list) else []}


def _members(arguments: str | None) -> dict[str, Any]:
    """A call's arguments are one JSON object; before they have come there are none."""
    return arguments_object(arguments) if arguments else {}
