"""The body of `POST /v1/completions`, and what it asks of the model. Spec: chat §5.4.

The prompt is put to the model as one user message, because the model was trained on nothing else.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from apps.serve.schema.fields import WholeNumber, validate
from apps.serve.schema.openai_request import OpenAiRequest
from apps.serve.schema.turn_options import turn_effort
from apps.serve.settings import ServerSettings
from apps.serve.thinking import ThinkingControls
from apps.serve.turn_request import Ask, ModelFacts
from shared.errors import RequestError
from shared.text.messages import Message

_SYSTEM_TEXT: Final = "You are a helpful assistant"


def _first_text(prompt: Any) -> Any:
    """Of several prompts the first counts."""
    if not isinstance(prompt, list):
        return prompt
    if not prompt:
        raise ValueError("send a prompt")
    if not isinstance(prompt[0], str):
        raise ValueError("must be a text: prompts of token ids are not supported")
    return prompt[0]


class CompletionRequest(OpenAiRequest):
    prompt: Annotated[str, BeforeValidator(_first_text)]
    logprobs: WholeNumber | bool | None = None


def parse_completion(body: dict[str, Any], model: ModelFacts, settings: ServerSettings) -> Ask:
    """What is asked of the model. Raises RequestError for anything the endpoint does not do."""
    request = validate(CompletionRequest, body)
    request.refuse("logit_bias", "presence_penalty", "frequency_penalty")
    if request.logprobs is not None and request.logprobs is not False:
        raise RequestError("logprobs is not supported here: use /v1/chat/completions", param="logprobs")
    controls = ThinkingControls.of(body, request.reasoning_effort)
    effort, note = turn_effort(controls, request.model, model, settings)
    return Ask(
        kind="completion",
        model=request.model if request.model is not None else model.id,
        stream=bool(request.stream),
        messages=[Message("system", _SYSTEM_TEXT), Message("user", request.prompt)],
        tools=None,
        effort=effort,
        generation=request.generation(settings, thinking=effort != "none"),
        note=note,
        include_usage=request.include_usage,
    )
