"""Forms of answers on engines with weights: the masks reach the logits of every one of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import jsonschema
import pytest

from shared.session import Engine
from tests.support.api_server import serve_engine
from tests.support.tiny_engines import open_mlx, open_reference
from tests.support.turns import tool

_SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "bc"]}, "counts": {"type": "array", "items": {"type": "boolean"}}},
    "required": ["kind", "counts"],
    "additionalProperties": False,
}
_FORM = {"type": "json_schema", "json_schema": {"schema": _SCHEMA}}


@pytest.mark.parametrize("open_engine", [open_mlx, open_reference])
def test_a_model_that_knows_nothing_answers_in_form(open_engine: Callable[[], Engine]) -> None:
    asked: dict[str, Any] = {
        "messages": [{"role": "user", "content": "hello"}],
        "think": False,
        "max_tokens": 90,
    }
    tools = [{"type": "function", "function": tool(name, "x")} for name in ("alpha", "beta")]
    with serve_engine(open_engine, context=2048) as server:

        def choice(**fields: Any) -> Any:
            reply = httpx.post(f"{server.url}/v1/chat/completions", json=asked | fields, timeout=60)
            assert reply.status_code == 200, reply.text
            return reply.json()["choices"][0]

        for temperature in (0, 1):
            answer = choice(response_format=_FORM, temperature=temperature, seed=3)
            if answer["finish_reason"] == "stop":
                jsonschema.validate(json.loads(answer["message"]["content"]), _SCHEMA)
            else:
                assert answer["message"]["content"].startswith("{")
        penalised = choice(max_tokens=12, temperature=0, frequency_penalty=2, logprobs=True, top_logprobs=2)
        scores = penalised["logprobs"]["content"]
        assert all(score["logprob"] <= score["top_logprobs"][0]["logprob"] <= 0 for score in scores)
        log = server.log
        forced = httpx.post(
            f"{server.url}/v1/chat/completions",
            json=asked
            | {"tools": tools, "tool_choice": "required", "max_tokens": 60, "stream": True, "seed": 1},
            timeout=60,
        ).text
    assert log.count("finish=stop") >= 1, log
    starts = [line for line in forced.splitlines() if '"name":"alpha"' in line or '"name":"beta"' in line]
    assert len(starts) == 1
