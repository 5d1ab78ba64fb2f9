"""Tool calls over HTTP: what cannot be read, what agents really send, what is remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from apps.serve.settings import ServerSettings
from tests.support.api_server import QUICK, RunningServer, serve_script
from tests.support.turns import pieces

_CLIENTS = Path(__file__).parent / "clients"
_TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
            "required": ["command"],
        },
    },
}
_HELLO = [{"role": "user", "content": "hello"}]
_BROKEN = "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"


def _block(*commands: str) -> str:
    calls = "".join(
        f'<｜DSML｜invoke name="bash">\n<｜DSML｜parameter name="command" string="true">{command}'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
        for command in commands
    )
    return f"\n\n<｜DSML｜tool_calls>\n{calls}</｜DSML｜tool_calls>"


def _post(server: RunningServer, **fields: Any) -> Any:
    body = {"model": "deepseek-chat", "messages": _HELLO, "tools": [_TOOL]} | fields
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def _stream(server: RunningServer, **fields: Any) -> list[Any]:
    body = {"model": "deepseek-chat", "messages": _HELLO, "tools": [_TOOL], "stream": True} | fields
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]


def _streamed_calls(events: list[Any]) -> dict[int, tuple[str, str]]:
    """Name and joined arguments of each call."""
    calls: dict[int, tuple[str, str]] = {}
    for event in events:
        for choice in event["choices"]:
            for part in choice["delta"].get("tool_calls", ()):
                name, arguments = calls.get(part["index"], (part["function"].get("name", ""), ""))
                calls[part["index"]] = (name, arguments + part["function"]["arguments"])
    return calls


# --- calls that cannot be read -----------------------------------------------------------------------


def _prefills(server: RunningServer) -> list[dict[str, Any]]:
    """The journal's prefills of prompts; the stops that each makes on its way are none of their own."""
    prefills: list[dict[str, Any]] = []
    decoded = True
    for entry in server.journal:
        if entry["call"] == "pick":
            decoded = True
        elif entry["call"] == "sync" and decoded:
            prefills.append(entry)
            decoded = False
        elif entry["call"] == "sync":
            evaluated = prefills[-1]["evaluated"] + entry["evaluated"]
            prefills[-1] = entry | {"reused": prefills[-1]["reused"], "evaluated": evaluated}
    return prefills


def test_a_whole_answer_hides_a_failed_call_and_tries_once_more() -> None:
    script = {"turns": [{"pieces": ["Wait.", *pieces(_BROKEN)]}, {"pieces": pieces(_block("ls"))}]}
    with serve_script(script) as server:
        answer = _post(server)
        syncs = _prefills(server)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == ""
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"command": "ls"}
    # The second attempt goes on from the first: nothing is prefilled again.
    assert len(syncs) == 2
    assert syncs[1]["reused"] > syncs[0]["tokens"]
    assert answer["usage"]["prompt_tokens"] == syncs[0]["tokens"] == syncs[0]["evaluated"]
    assert answer["usage"]["completion_tokens"] < len(_block("ls"))


def test_a_second_failure_is_told_and_so_is_a_failure_in_a_stream() -> None:
    with serve_script({"turns": [{"pieces": pieces(_BROKEN)}]}) as server:
        message = _post(server)["choices"][0]
        tries = len(_prefills(server))
        events = _stream(server)
    assert tries == 2
    assert message["finish_reason"] == "stop"
    assert "tool_calls" not in message["message"]
    assert "could not be read" in message["message"]["content"]
    content = "".join(c["delta"].get("content", "") for e in events for c in e["choices"])
    assert content == message["message"]["content"]
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert "DSML" not in content


def test_a_call_cut_by_the_budget_is_not_tried_again_and_never_closes() -> None:
    pieces = list(_block("ls -la").removesuffix("</｜DSML｜invoke>\n</｜DSML｜tool_calls>"))
    with serve_script({"turns": [{"pieces": pieces}]}) as server:
        budget = len(pieces) - 30
        whole = _post(server, max_tokens=budget)["choices"][0]
        events = _stream(server, max_tokens=budget)
        evaluated = [entry["evaluated"] for entry in _prefills(server)]
    # The prompt, and its last token again for the same prompt: no further attempt.
    assert evaluated[1:] == [1]
    assert whole["finish_reason"] == "length"
    assert "tool_calls" not in whole["message"]
    ((name, arguments),) = _streamed_calls(events).values()
    assert name == "bash"
    with pytest.raises(json.JSONDecodeError):
        json.loads(arguments)


def test_no_retry_when_the_context_has_no_room() -> None:
    script = {"turns": [{"pieces": pieces(_BROKEN)}]}
    with serve_script(script) as server:
        prompt = _post(server)["usage"]["prompt_tokens"]
    with serve_script(script, context=prompt + 100) as server:
        message = _post(server)["choices"][0]["message"]
        assert len(_prefills(server)) == 1
    assert "could not be read" in message["content"]


# --- several calls, replay -----------------------------------------------------------------------------


def _history(message: dict[str, Any], *drop: str) -> list[Any]:
    calls = message["tool_calls"]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "out"} for call in calls]
    kept = {key: value for key, value in message.items() if key not in drop}
    return [*_HELLO, kept, *results]


def test_parallel_calls_have_their_own_index_and_id() -> None:
    with serve_script({"turns": [{"pieces": pieces(_block("a", "b"))}]}) as server:
        events = _stream(server)
        message = _post(server)["choices"][0]["message"]
    assert _streamed_calls(events) == {0: ("bash", '{"command":"a"}'), 1: ("bash", '{"command":"b"}')}
    assert len({call["id"] for call in message["tool_calls"]}) == 2


@pytest.mark.parametrize("replay", [True, False])
def test_the_sampled_block_is_replayed_unless_that_is_turned_off(replay: bool) -> None:
    """The model wrote its JSON value with spaces; canonical rendering would write it without."""
    block = _block("ls").replace(
        "</｜DSML｜invoke>",
        '<｜DSML｜parameter name="timeout" string="false"> 10 </｜DSML｜parameter>\n</｜DSML｜invoke>',
    )
    script = {"turns": [{"pieces": pieces(block)}, {"pieces": ["done"]}]}
    with serve_script(script, settings=ServerSettings(timing=QUICK, exact_replay=replay)) as server:
        message = _post(server)["choices"][0]["message"]
        usage = _post(server, messages=_history(message))["usage"]
    new = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    assert (new < 100) == replay


def test_reasoning_that_the_client_dropped_is_put_back_from_memory() -> None:
    script = {"turns": [{"pieces": pieces("Hm.</think>" + _block("ls"))}, {"pieces": ["x", "</think>", "y"]}]}
    with serve_script(script) as server:
        message = _post(server, model="m")["choices"][0]["message"]
        assert message["reasoning_content"] == "Hm."
        answer = _post(server, model="m", messages=_history(message, "reasoning_content"))
    details = answer["usage"]["prompt_tokens_details"]
    assert answer["usage"]["prompt_tokens"] - details["cached_tokens"] < 100
    assert "source=memory-token" in server.log


def test_a_history_whose_calls_are_not_ours_needs_no_reasoning() -> None:
    call = {"id": "x", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
    history = _history({"role": "assistant", "content": None, "tool_calls": [call]})
    with serve_script({"turns": [{"pieces": ["x", "</think>", "fine"]}]}) as server:
        assert _post(server, model="m", messages=history)["choices"][0]["message"]["content"] == "fine"


# --- what agents send ------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["opencode", "pi"])
def test_the_shapes_of_real_clients(client: str) -> None:
    """Two turns as recorded: a call, then its result; only the new part is prefilled."""
    first, second = (
        json.loads((_CLIENTS / f"{client}-turn{turn}.json").read_text(encoding="utf-8")) for turn in (1, 2)
    )
    script = {
        "turns": [
            {"pieces": pieces("I run it.</think>" + _block("echo hello-from-tool"))},
            {"pieces": ["Good.", "</think>", "It says hello."]},
        ]
    }
    with serve_script(script, context=40_000) as server:
        replies = []
        for request in (first, second):
            url = f"{server.url}/v1/chat/completions"
            response = httpx.post(url, json=request["body"], headers=request["headers"])
            assert response.status_code == 200
            lines = response.text.splitlines()
            replies.append([json.loads(line[6:]) for line in lines if line.startswith("data: {")])
    calls = _streamed_calls(replies[0])
    assert calls == {0: ("bash", '{"command":"echo hello-from-tool"}')}
    content = "".join(c["delta"].get("content", "") for e in replies[1] for c in e["choices"])
    assert content == "It says hello."
    assert replies[1][-1]["usage"]["prompt_tokens"] > replies[0][-1]["usage"]["prompt_tokens"]


def test_the_side_request_for_a_title() -> None:
    request = json.loads((_CLIENTS / "opencode-title.json").read_text(encoding="utf-8"))
    with serve_script({"turns": [{"pieces": ["t", "</think>", "A title"]}]}, context=40_000) as server:
        response = httpx.post(f"{server.url}/v1/chat/completions", json=request["body"])
    assert response.status_code == 200
    assert response.text.rstrip().endswith("data: [DONE]")
