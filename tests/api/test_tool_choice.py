"""A tool call that a client requires is made, on every turn of mind of the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from shared.text import marks
from tests.support.api_server import RunningServer, serve_script
from tests.support.conversations import forced
from tests.support.turns import M, block, invoke, parameter, pieces, tool

_TOOLS = [{"type": "function", "function": tool(name, "command")} for name in ("bash", "read")]


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[RunningServer]:
    held = block(invoke("bash", parameter("command", "held")))
    turns = [
        {"match": "plain", "pieces": forced("bash")},
        {"match": "other", "pieces": forced("read")},
        {
            "match": "muse",
            "pieces": ["No need.", {"text": marks.EOS, "else": ["</think>"]}, *forced("bash")],
        },
        {
            "match": "held",
            "pieces": ["Hm.\n\n", *pieces(held), {"text": " So", "else": ["</think>"]}, *forced("read")],
        },
        # What follows a call that could not be read.
        {"match": "was not executed", "pieces": forced("read")},
        {"match": "lost", "pieces": [*forced("bash")[:7], "oops</", M, "invoke>\n</", M, "tool_calls>"]},
    ]
    with serve_script({"turns": turns, "after": "cycle"}) as server:
        yield server


def _ask(server: RunningServer, content: str, choice: Any, **fields: Any) -> Any:
    body = {
        "messages": [{"role": "user", "content": content}],
        "think": False,
        "tools": _TOOLS,
        "tool_choice": choice,
    } | fields
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=30)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def _named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def _called(choice: Any) -> list[tuple[str, Any]]:
    assert choice["finish_reason"] == "tool_calls"
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in choice["message"]["tool_calls"]
    ]


def test_a_choice_left_to_the_model_is_its_own(server: RunningServer) -> None:
    choice = _ask(server, "plain", "auto")
    assert choice["message"]["content"].startswith("I'd rather not.")


@pytest.mark.parametrize("choice", ["required", _named("bash")])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_required_call_is_made(server: RunningServer, choice: Any, temperature: float) -> None:
    answer = _ask(server, "plain", choice, temperature=temperature)
    assert _called(answer) == [("bash", {"command": "ls"})]
    assert answer["message"]["content"] == ""


def test_which_of_the_tools_is_the_models_choice(server: RunningServer) -> None:
    assert _called(_ask(server, "other", "required")) == [("read", {"command": "ls"})]


def test_thinking_comes_first_and_cannot_end_the_turn(server: RunningServer) -> None:
    answer = _ask(server, "muse", _named("bash"), think=True)
    assert answer["message"]["reasoning_content"] == "No need."
    assert _called(answer) == [("bash", {"command": "ls"})]


def test_a_call_in_open_thinking_does_not_stand_for_the_required_one(server: RunningServer) -> None:
    answer = _ask(server, "held", _named("read"), think=True)
    assert _called(answer) == [("read", {"command": "ls"})]
    assert "held" in answer["message"]["reasoning_content"]
    assert M not in answer["message"]["reasoning_content"]


def test_a_required_call_goes_before_a_form_of_the_answer(server: RunningServer) -> None:
    answer = _ask(server, "plain", "required", response_format={"type": "json_object"})
    assert _called(answer) == [("bash", {"command": "ls"})]


def test_a_second_attempt_has_to_be_a_call_as_well(server: RunningServer) -> None:
    assert _called(_ask(server, "lost", "required")) == [("read", {"command": "ls"})]


def test_a_budget_that_ends_in_the_opener_is_told(server: RunningServer) -> None:
    answer = _ask(server, "plain", "required", max_tokens=9)
    assert answer["finish_reason"] == "length"
    assert "tool_calls" not in answer["message"]


def test_a_stream_carries_the_call(server: RunningServer) -> None:
    body = {
        "messages": [{"role": "user", "content": "plain"}],
        "think": False,
        "tools": _TOOLS,
        "tool_choice": "required",
        "stream": True,
    }
    text = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=30).text
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    deltas = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert deltas[0]["function"] == {"name": "bash", "arguments": ""}
    assert json.loads("".join(delta["function"]["arguments"] for delta in deltas)) == {"command": "ls"}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_the_prompt_of_a_required_call_is_that_of_any(server: RunningServer) -> None:
    prompts = set()
    for choice in ("auto", "required", _named("bash")):
        body = {"messages": [{"role": "user", "content": "plain"}], "tools": _TOOLS, "tool_choice": choice}
        response = httpx.post(f"{server.url}/v1/chat/completions", json=body | {"think": False}, timeout=30)
        prompts.add(response.json()["usage"]["prompt_tokens"])
    assert len(prompts) == 1
