"""From a messages body to a dialect-neutral `Ask`. Spec: chat §4, §5.4. Knows no HTTP."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from apps.serve.schema.fields import validate
from apps.serve.schema.messages import (
    Block,
    Choice,
    InputMessage,
    MessagesRequest,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from apps.serve.schema.output_format import text_format
from apps.serve.schema.tools import offered_tools
from apps.serve.schema.turn_options import SamplingFields, generation_settings, turn_effort
from apps.serve.settings import ServerSettings
from apps.serve.thinking import ThinkingControls
from apps.serve.turn_request import Ask, ModelFacts, ToolChoice
from shared.errors import RequestError
from shared.text.messages import Message, ToolCall, ToolSchema

# A line that a client puts before the system text for its own accounting. It is new with every request: the
# model must not read it, and no state could be reused.
_ACCOUNT_LINE: Final = re.compile(r"x-anthropic-[^\n]*(\n|\Z)")


def parse_messages(body: dict[str, Any], model: ModelFacts, settings: ServerSettings) -> Ask:
    """What is asked of the model. Raises RequestError for anything the endpoint does not do."""
    request = validate(MessagesRequest, body)
    _refuse_unsupported(request)
    controls = ThinkingControls.of(body, request.effort, switches=("thinking",))
    effort, note = turn_effort(controls, request.model, model, settings)
    choice = _tool_choice(request.tool_choice)
    return Ask(
        kind="messages",
        model=request.model if request.model is not None else model.id,
        stream=bool(request.stream),
        messages=list(_history(request)),
        tools=offered_tools(_tool_schemas(request.tools or ()), choice),
        effort=effort,
        generation=generation_settings(
            SamplingFields(request.temperature, request.top_p, request.top_k),
            settings,
            thinking=effort != "none",
            max_tokens=request.max_tokens,
            stop=request.stop_sequences,
        ),
        note=note,
        tool_choice=choice,
        json=text_format(request.format, "output_config.format"),
    )


def _refuse_unsupported(request: MessagesRequest) -> None:
    if not request.messages:
        raise RequestError("messages: send at least one message", param="messages")
    if request.mcp_servers:
        raise RequestError(
            "mcp_servers: this server connects to no others; offer their tools as tools", param="mcp_servers"
        )


def _tool_choice(choice: Choice | None) -> ToolChoice:
    match choice:
        case None | Choice(type="auto"):
            return ToolChoice()
        case Choice(type="none"):
            return ToolChoice("none")
        case Choice(type="any"):
            return ToolChoice("required")
        case Choice(type="tool", name=str(name)):
            return ToolChoice("named", name)
    raise RequestError(
        "tool_choice: its type must be auto, any, none, or tool with a name", param="tool_choice"
    )


def _tool_schemas(tools: Sequence[Mapping[str, Any]]) -> list[ToolSchema]:
    """The tools as the client wrote them, without what it says of caching them."""
    for index, tool in enumerate(tools):
        if not isinstance(tool.get("name"), str):
            raise RequestError(f"tools.{index}: the tool has no name", param="tools")
    return [{key: value for key, value in tool.items() if key != "cache_control"} for tool in tools]


def _history(request: MessagesRequest) -> Iterator[Message]:
    """The system text, then every message."""
    if system := _system_text(request.system):
        yield Message("system", system)
    for message in request.messages:
        if message.role == "assistant":
            yield _answer(message)
        elif message.role == "user":
            yield from _input(message)
        else:
            yield Message(message.role, _text(message.content))


def _system_text(blocks: Sequence[Block]) -> str:
    """The texts, each from a line of its own on, without the account lines that stand before all."""
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    while texts and (line := _ACCOUNT_LINE.match(texts[0])):
        texts[0] = texts[0][line.end() :]
        if not texts[0]:
            del texts[0]
    system = ""
    for text in texts:
        system += f"\n{text}" if system and not system.endswith("\n") else text
    return system


def _answer(message: InputMessage) -> Message:
    return Message(
        "assistant",
        _text(message.content),
        reasoning="".join(
            block.thinking or "" for block in message.content if isinstance(block, ThinkingBlock)
        ),
        tool_calls=tuple(
            ToolCall(block.id, block.name, json.dumps(block.input or {}, ensure_ascii=False))
            for block in message.content
            if isinstance(block, ToolUseBlock)
        ),
    )


def _input(message: InputMessage) -> Iterator[Message]:
    """Results of tools and texts, in their order, in one turn."""
    parts: list[Message] = []
    spoken = [block for block in message.content if isinstance(block, TextBlock | ToolResultBlock)]
    for kind, blocks in itertools.groupby(spoken, type):
        if kind is TextBlock:
            parts.append(Message("user", _text(list(blocks))))
        else:
            parts += [_result(block) for block in blocks if isinstance(block, ToolResultBlock)]
    for index, part in enumerate(parts or [Message("user", "")]):
        yield replace(part, continues=index > 0)


def _result(block: ToolResultBlock) -> Message:
    return Message("tool", _text(block.content), tool_call_ids=(block.tool_use_id,))


def _text(blocks: Sequence[Block]) -> str:
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))
