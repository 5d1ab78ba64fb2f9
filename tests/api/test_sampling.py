"""Which sampler a request gets, seen in what it draws from scripted distributions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.api_server import RunningServer, serve_script
from tests.support.turns import M, pieces, tool

_EVEN = {"logits": {"a": 1.0, "b": 0.9}}
_TAG = f'<{M}tool_calls>\n<{M}invoke name="bash">\n<{M}parameter name="command" string="true"'
_END = f"</{M}parameter>\n</{M}invoke>\n</{M}tool_calls>"
_TOOLS = [{"type": "function", "function": tool("bash", "command")}]


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[RunningServer]:
    calls = {
        "match": "call",
        # The tag is syntax, the value is not.
        "pieces": [*pieces(_TAG), {"logits": {">": 1.0, "?": 0.9}}, *[_EVEN] * 24, *pieces(_END)],
    }
    words = {"pieces": [_EVEN] * 40, "match": "words"}
    with serve_script({"turns": [words, calls]}) as server:
        yield server


def _ask(server: RunningServer, content: str, **fields: Any) -> Any:
    body = {"messages": [{"role": "user", "content": content}]} | fields
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]


def _words(server: RunningServer, **fields: Any) -> str:
    message = _ask(server, "words", **fields)
    return str(message["content"] or message["reasoning_content"])


@pytest.mark.parametrize("think", [True, False])
def test_a_bare_request_samples_and_a_temperature_of_zero_does_not(
    server: RunningServer, think: bool
) -> None:
    assert set(_words(server, think=think)) == {"a", "b"}
    assert _words(server, think=think, temperature=0) == "a" * 40


def test_thinking_keeps_the_defaults_whatever_else_was_asked(server: RunningServer) -> None:
    narrow: dict[str, Any] = {"temperature": 0.001, "top_k": 1, "top_p": 0.01, "min_p": 1.0}
    for field, value in narrow.items():
        assert _words(server, think=False, **{field: value}) == "a" * 40, field
    assert set(_words(server, think=True, **narrow)) == {"a", "b"}


def test_a_seed_repeats_a_draw(server: RunningServer) -> None:
    first = _words(server, think=False, seed=7)
    assert _words(server, think=False, seed=7) == first
    assert len({_words(server, think=False, seed=seed) for seed in range(1, 6)}) == 5


def test_the_syntax_of_a_call_is_never_drawn_and_its_values_are(server: RunningServer) -> None:
    values = set()
    for seed in range(1, 9):
        message = _ask(server, "call", think=False, tools=_TOOLS, seed=seed)
        (call,) = message["tool_calls"]
        found = re.fullmatch(r'\{"command":"([ab]{24})"\}', call["function"]["arguments"])
        assert found, message
        values.add(found[1])
    assert len(values) > 1
