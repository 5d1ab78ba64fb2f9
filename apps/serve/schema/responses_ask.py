"""From a responses body to a dialect-neutral `Ask`. Spec: chat §4, §5.4. Knows no HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.serve.schema.fields import validate
from apps.serve.schema.output_format import text_format
from apps.serve.schema.response_items import ResultItem
from apps.serve.schema.responses import ResponsesRequest
from apps.serve.schema.responses_history import responses_history
from apps.serve.schema.responses_tools import WireTool, declared_tools, responses_tool_choice
from apps.serve.schema.tools import offered_tools
from apps.serve.schema.turn_options import SamplingFields, generation_settings, turn_effort
from apps.serve.settings import ServerSettings
from apps.serve.thinking import ThinkingControls
from apps.serve.turn_request import Ask, ModelFacts
from shared.errors import RequestError
from shared.text.effort import Effort
from shared.text.messages import Message


@dataclass(frozen=True, slots=True)
class ResponsesAsk(Ask):
    """An ask, and what its answer's wire form depends on: for the model's names of tools the client's, and
    the choice of tools as the client put it."""

    wires: Mapping[str, WireTool] = field(default_factory=dict)
    sent_choice: str | Mapping[str, Any] = "auto"


def parse_responses(body: dict[str, Any], model: ModelFacts, settings: ServerSettings) -> ResponsesAsk:
    """What is asked of the model. Raises RequestError for anything the endpoint does not do."""
    request = validate(ResponsesRequest, body)
    request.refuse_unsupported()
    effort, note = _effort(request, model, settings)
    choice = responses_tool_choice(request.tool_choice)
    results = (item for item in request.input if isinstance(item, ResultItem))
    found = [tool for result in results for tool in result.tools or ()]
    tools = declared_tools(request.tools or (), found)
    return ResponsesAsk(
        kind="responses",
        model=request.model if request.model is not None else model.id,
        stream=bool(request.stream),
        messages=_messages(request),
        tools=offered_tools(tools.schemas, choice),
        effort=effort,
        generation=generation_settings(
            SamplingFields(request.temperature, request.top_p),
            settings,
            thinking=effort != "none",
            max_tokens=request.budget,
        ),
        note=note,
        tool_choice=choice,
        json=text_format(None if request.text is None else request.text.format),
        shows_reasoning=request.shows_reasoning,
        wires=tools.wires,
        sent_choice="auto" if request.tool_choice is None else request.tool_choice,
    )


def _effort(
    request: ResponsesRequest, model: ModelFacts, settings: ServerSettings
) -> tuple[Effort, str | None]:
    try:
        return turn_effort(ThinkingControls.of_effort(request.effort), request.model, model, settings)
    except RequestError as error:
        raise RequestError(str(error), param="reasoning") from None


def _messages(request: ResponsesRequest) -> list[Message]:
    """The instructions come first."""
    history = responses_history(request.input)
    return [Message("system", request.instructions), *history] if request.instructions else history
