"""From a chat completions body to a dialect-neutral `Ask`. Spec: chat §4, §5.4. Knows no HTTP."""

from __future__ import annotations

from typing import Any

from apps.serve.schema.chat import ChatMessage, ChatRequest
from apps.serve.schema.fields import validate
from apps.serve.schema.output_format import response_format
from apps.serve.schema.tools import offered_tools, openai_tool_choice, tool_schemas
from apps.serve.schema.turn_options import turn_effort
from apps.serve.settings import ServerSettings
from apps.serve.thinking import ThinkingControls
from apps.serve.turn_request import Ask, ModelFacts
from shared.errors import RequestError
from shared.text.messages import Message, ToolCall


def parse_chat(body: dict[str, Any], model: ModelFacts, settings: ServerSettings) -> Ask:
    """What is asked of the model. Raises RequestError for anything the endpoint does not do."""
    request = validate(ChatRequest, body)
    refuse_unsupported(request)
    controls = ThinkingControls.of(body, request.reasoning_effort)
    effort, note = turn_effort(controls, request.model, model, settings)
    choice = openai_tool_choice(request.tool_choice)
    return Ask(
        kind="chat",
        model=request.model if request.model is not None else model.id,
        stream=bool(request.stream),
        messages=[_message(message) for message in request.messages],
        tools=offered_tools(tool_schemas(request.tools or ()), choice),
        effort=effort,
        generation=request.generation(settings, thinking=effort != "none"),
        note=note,
        include_usage=request.include_usage,
        tool_choice=choice,
        json=response_format(request.response_format),
    )


def refuse_unsupported(request: ChatRequest) -> None:
    """Fields that would change the answer and that nothing here honours must not be skipped silently."""
    if not request.messages:
        raise RequestError("messages: send at least one message", param="messages")
    request.refuse("logit_bias")
    if request.top_logprobs and not request.logprobs:
        raise RequestError("top_logprobs: set logprobs to true as well", param="top_logprobs")


def _message(message: ChatMessage) -> Message:
    calls = []
    for call in message.tool_calls or ():
        function = call.function
        arguments = function.arguments_text if function is not None else None
        if function is not None and function.name is not None and arguments is not None:
            calls.append(ToolCall(call.id or "", function.name, arguments))
    return Message(
        role=message.role,
        content=message.content,
        reasoning=message.reasoning_content or "",
        tool_calls=tuple(calls),
        tool_call_ids=() if message.tool_call_id is None else (message.tool_call_id,),
    )
