"""From a chat completions body to a dialect-neutral `Ask`. Spec: chat §4, §5.4. Knows no HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from apps.serve.schema.chat import ChatMessage, ChatRequest
from apps.serve.schema.fields import validate
from apps.serve.settings import ServerSettings
from apps.serve.thinking import ThinkingControls, ThinkingDefaults, choose_effort
from apps.serve.turn_request import Ask, ModelFacts
from shared.errors import RequestError
from shared.generate import GenerationSettings
from shared.sampling import Sampling, effective_sampling
from shared.text.messages import Message, ToolCall, ToolSet

_DEFAULTS = Sampling()
_TOP_K_LIMIT = 1024


def parse_chat(body: dict[str, Any], model: ModelFacts, settings: ServerSettings) -> Ask:
    """What is asked of the model. Raises RequestError for anything the endpoint does not do."""
    request = validate(ChatRequest, body)
    refuse_unsupported(request)
    defaults = ThinkingDefaults(
        settings.thinking, settings.effort, model.effort_profile, model.context, pro=model.id.endswith("-pro")
    )
    controls = ThinkingControls.of(body, request.reasoning_effort)
    effort, note = choose_effort(controls, request.model, defaults)
    return Ask(
        kind="chat",
        model=request.model if request.model is not None else model.id,
        stream=bool(request.stream),
        messages=[_message(message) for message in request.messages],
        tools=_active_tools(request),
        effort=effort,
        generation=_generation(request, settings, thinking=effort != "none"),
        note=note,
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
    )


def refuse_unsupported(request: ChatRequest) -> None:
    """Fields that would change the answer and that nothing here honours must not be skipped silently."""
    if not request.messages:
        raise RequestError("messages: send at least one message", param="messages")
    if request.n is not None and request.n != 1:
        raise RequestError("n: only one answer per request is supported", param="n")
    for name in ("logit_bias", "logprobs", "top_logprobs", "presence_penalty", "frequency_penalty"):
        if getattr(request, name):
            raise RequestError(f"{name} is not supported", param=name)
    kind = (request.response_format or {}).get("type", "text")
    if kind != "text":
        raise RequestError(
            f"response_format {str(kind)[:50]!r} is not supported: only text is", param="response_format"
        )


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


def _active_tools(request: ChatRequest) -> ToolSet | None:
    choice = request.tool_choice
    schemas = tool_schemas(request.tools or ())
    if choice == "none" or not schemas:
        return None
    if choice not in (None, "auto"):
        shown = choice if isinstance(choice, str) else json.dumps(choice)
        raise RequestError(
            f"tool_choice {shown[:80]} is not supported: use auto or none", param="tool_choice"
        )
    return ToolSet(schemas)


def tool_schemas(tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
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


def _generation(request: ChatRequest, settings: ServerSettings, *, thinking: bool) -> GenerationSettings:
    budget = request.max_completion_tokens
    if budget is None:
        budget = request.max_tokens
    return GenerationSettings(
        sampling=effective_sampling(_sampling(request), thinking),
        max_tokens=settings.max_tokens if budget is None else max(0, budget),
        stop=request.stop,
        seed=request.seed if request.seed is not None and request.seed > 0 else None,
    )


def _sampling(request: ChatRequest) -> Sampling:
    """Values outside their range mean what the nearest sensible one means."""
    top_p = request.top_p if request.top_p is not None else _DEFAULTS.top_p
    min_p = request.min_p if request.min_p is not None else _DEFAULTS.min_p
    return Sampling(
        temperature=request.temperature if request.temperature is not None else _DEFAULTS.temperature,
        top_p=top_p if 0 < top_p <= 1 else 1.0,
        min_p=max(0.0, min_p),
        top_k=min(max(0, request.top_k or 0), _TOP_K_LIMIT),
    )
