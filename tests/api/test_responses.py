"""`/v1/responses` as agents use it: what a next turn costs, whatever comes back; wire shapes; limits."""

from __future__ import annotations

import copy
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from apps.serve.settings import DiskSettings, ServerSettings
from apps.serve.worker import InferenceWorker
from shared.kv.store.policy import StoreSettings
from tests.support.api_server import QUICK, RunningServer, serve_script
from tests.support.conversations import script
from tests.support.turns import F10, block, invoke, parameter, tool

_CLIENTS = Path(__file__).parent / "clients"
_BASH = {"type": "function", **tool("bash", "command")}
_RESULT_TOKENS = 1 + 1 + len("<tool_result>out</tool_result>") + 2


def _call(command: str, name: str = "bash", key: str = "command") -> str:
    return "\n\n" + block(invoke(name, parameter(key, command)))


def _user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _post(server: RunningServer, items: Any, **fields: Any) -> httpx.Response:
    body = {"model": "m", "input": items, "tools": [_BASH]} | fields
    return httpx.post(f"{server.url}/v1/responses", json=body, timeout=60)


def _ask(server: RunningServer, items: Any, **fields: Any) -> Any:
    response = _post(server, items, **fields)
    assert response.status_code == 200, response.text
    return response.json()


def _stream(server: RunningServer, body: dict[str, Any], headers: Any = None) -> list[dict[str, Any]]:
    response = httpx.post(f"{server.url}/v1/responses", json=body, headers=headers, timeout=60)
    assert response.status_code == 200, response.text
    lines = response.text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert [line[7:] for line in lines if line.startswith("event: ")] == [e["type"] for e in events]
    return events


def _new(answer: Any) -> int:
    usage = answer["usage"]
    new: int = usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"]
    return new


def _sent_back(output: list[Any], *, reasoning: bool) -> list[Any]:
    """What a client makes of an answer for the next request."""
    return [item for item in output if reasoning or item["type"] != "reasoning"]


def _result(output: list[Any], text: str = "out") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": output[-1]["call_id"], "output": text}


def _codex(turn: int) -> dict[str, Any]:
    request: dict[str, Any] = json.loads((_CLIENTS / f"codex-turn{turn}.json").read_text(encoding="utf-8"))
    return request


class TestCodex:
    @pytest.mark.parametrize("reasoning", [True, False])
    def test_the_second_turn_prefills_only_what_is_new(self, reasoning: bool) -> None:
        """Two turns as recorded, the calls under the ids that this server gave, then a third one."""
        command = _call("echo hello-from-tool", "exec_command", "cmd")
        played = script("I run it.</think>Sure." + command, "Good.</think>It says hello.", "x</think>Bye.")
        with serve_script(played, context=60_000) as server:
            first, second = _codex(1), _codex(2)
            last = _stream(server, first["body"], first["headers"])[-1]
            output = last["response"]["output"]
            assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
            assert json.loads(output[-1]["arguments"]) == {"cmd": "echo hello-from-tool"}
            body = copy.deepcopy(second["body"])
            result = body["input"][-1] | {"call_id": output[-1]["call_id"]}
            body["input"] = [*body["input"][:-2], *_sent_back(output, reasoning=reasoning), result]
            answer = _stream(server, body, second["headers"])[-1]["response"]
            assert answer["output"][-1]["content"][0]["text"] == "It says hello."
            spoken = 1 + 1 + len(f"<tool_result>{result['output']}</tool_result>") + 2
            assert _new(answer) == spoken
            body["input"] += [*_sent_back(answer["output"], reasoning=reasoning), _user("bye")]
            assert _new(_stream(server, body)[-1]["response"]) == 1 + 1 + len("bye") + 2
            log = server.log
        source = "memory-token" if reasoning else "responses-visible"
        assert log.count(f"kv cache source={source} ") == (2 if reasoning else 1)
        assert "RESPPROTO TOOLS" in log

    def test_as_recorded_with_calls_that_another_server_made(self) -> None:
        """The ids are not ours: the history is rendered anew and costs no more than its last answer."""
        played = script("I run it.</think>" + _call("echo", "exec_command", "cmd"), "Good.</think>Hello.")
        with serve_script(played, context=60_000) as server:
            _stream(server, _codex(1)["body"])
            answer = _stream(server, _codex(2)["body"])[-1]["response"]
            log = server.log
        assert answer["status"] == "completed"
        assert _new(answer) < 600
        assert log.count("calls without reasoning=1: it did not come back") == 1


class TestContinuation:
    @pytest.mark.parametrize("replay", [True, False])
    @pytest.mark.parametrize("summary", [None, "auto"])
    @pytest.mark.parametrize("sends_back", [True, False])
    def test_an_agents_turns_prefill_only_what_is_new(
        self, replay: bool, summary: str | None, sends_back: bool
    ) -> None:
        """Reasoning shown or not, sent back or not, calls replayed as they were sampled or written anew."""
        played = script(
            "r1</think>I will." + _call("ls"),
            "r2\n\n</think>" + _call("pwd"),
            "r3</think>Done.",
            "r4</think>x",
        )
        settings = ServerSettings(timing=QUICK, exact_replay=replay)
        with serve_script(played, settings=settings) as server:
            items: list[Any] = [_user("look")]
            for turn in range(4):
                answer = _ask(server, items, reasoning={"summary": summary})
                if turn:
                    assert _new(answer) == (_RESULT_TOKENS if turn < 3 else 1 + 1 + len("and?") + 2)
                items += _sent_back(answer["output"], reasoning=sends_back)
                items.append(_result(items) if turn < 2 else _user("and?"))

    def test_without_tools_old_reasoning_is_hidden(self) -> None:
        with serve_script(script("r1</think>one", "r2</think>two")) as server:
            first = _ask(server, "hello", tools=[])
            items = [_user("hello"), *first["output"], _user("more")]
            assert _new(_ask(server, items, tools=[])) == 1 + 1 + len("more") + 2
            assert "responses live continuation match=visible" in server.log

    def test_a_misspelt_block_is_gone_on_from_although_it_is_never_shown_again(self) -> None:
        misspelt = _call("ls").replace("tool_calls", "tool_cals")
        with serve_script(script("r</think>" + misspelt, "s</think>Done.")) as server:
            first = _ask(server, [_user("look")])
            items = [_user("look"), *first["output"], _result(first["output"])]
            assert _new(_ask(server, items)) == _RESULT_TOKENS

    def test_other_words_with_the_same_calls_are_the_same_answer(self) -> None:
        with serve_script(script("r</think>Well." + _call("ls"), "s</think>Done.")) as server:
            first = _ask(server, [_user("look")])
            # A client that leaves out what the model said beside its call.
            items = [_user("look"), first["output"][-1], _result(first["output"])]
            assert _new(_ask(server, items)) == _RESULT_TOKENS
            assert "responses live continuation match=tool-output ids=1" in server.log
            assert "without reasoning" not in server.log

    def test_results_alone_are_put_behind_the_live_answer(self) -> None:
        with serve_script(script("r</think>" + _call("ls"), "s</think>Done.")) as server:
            first = _ask(server, [_user("look")])
            second = _ask(server, [_result(first["output"])])
            assert second["output"][0]["content"][0]["text"] == "Done."
            assert _new(second) == _RESULT_TOKENS
            assert second["usage"]["input_tokens"] == first["usage"]["total_tokens"] + _RESULT_TOKENS
            # They name an answer that was live before, not any more.
            again = _post(server, [_result(first["output"])])
        assert again.status_code == 400
        assert "send the whole history" in again.json()["error"]["message"]

    @pytest.mark.parametrize("streamed", [True, False])
    def test_results_whose_answer_went_while_they_waited_are_a_conflict(
        self, streamed: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was live when the request came: nobody can tell in time that another turn takes its place."""
        monkeypatch.setattr(InferenceWorker, "knows_calls", lambda worker, calls: True)
        with serve_script(script("x</think>y", "s</think>z")) as server:
            _ask(server, "hello")
            late = _post(server, [_result([{"call_id": "call_gone"}])], stream=streamed)
            assert _ask(server, "hello")["output"][0]["content"][0]["text"] == "z"
            assert server.log.count('finish=refused reason="the answer that these tool results') == 1
        if streamed:
            assert '"type":"response.failed"' in late.text
        else:
            assert late.status_code == 409
            assert late.json()["error"]["type"] == "invalid_request_error"
        assert "send the whole history" in late.text

    def test_a_restarted_server_goes_on_from_the_disk(self, tmp_path: Path) -> None:
        store = StoreSettings(min_tokens=64, cold_max_tokens=0, continued_interval=0, durable=False)
        settings = ServerSettings(timing=QUICK, disk=DiskSettings(tmp_path, store))
        played = script("r1</think>I will." + _call("ls"), "r2</think>Done.")
        with serve_script(played, settings=settings) as server:
            items: list[Any] = [_user("look " * 30)]
            first = _ask(server, items)
            items += [*first["output"], _result(first["output"])]
            second = _ask(server, items)
        items += [*second["output"], _user("and?")]
        with serve_script(script("x</think>y"), settings=settings) as server:
            assert _new(_ask(server, items)) == 1 + 1 + len("and?") + 2
            assert "source=disk-text" in server.log


class TestRefusals:
    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"previous_response_id": "resp_1"}, "previous_response_id"),
            ({"conversation": {"id": "conv_1"}}, "conversation"),
            ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
            ({"input": [{"type": "telepathy"}]}, "telepathy"),
            ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input_image"),
            ({"input": [_user("x") | {"status": "incomplete"}]}, "completed"),
            (
                {"input": [{"type": "function_call_output", "call_id": "call_x", "output": ""}]},
                "whole history",
            ),
            ({"input": []}, "input"),
        ],
    )
    def test_what_cannot_be_done_is_said(self, fields: dict[str, Any], says: str) -> None:
        with serve_script(script("x</think>fine")) as server:
            response = _post(server, [_user("x")], **fields)
            after = _ask(server, "hello")
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert says in error["message"]
        assert after["output"][0]["content"][0]["text"] == "fine"


def test_everything_that_codex_can_send_at_once() -> None:
    """Tools of all kinds, and items of all kinds in the history, each in its own wire shape."""
    tools = [
        _BASH,
        {"type": "custom", "name": "apply_patch", "description": "d", "format": {"type": "text"}},
        {"type": "namespace", "name": "mcp__x__", "tools": [_BASH | {"name": "go"}]},
        {"type": "local_shell"},
        {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}},
        {"type": "web_search", "external_web_access": True},
    ]
    items = [
        _user("q"),
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "local_shell_call", "call_id": "c1", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "call_id": "c1", "output": "x"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** x"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
    ]
    calls = block(
        invoke("apply_patch", parameter("input", "*** Begin\n</x>")),
        invoke("mcp__x__go", parameter("command", "now")),
        invoke("local_shell", parameter("command", '["ls"]', "false")),
        invoke("tool_search", parameter("query", "x")),
    )
    with serve_script(script("r</think>\n\n" + calls, "s</think>Done.")) as server:
        body = {"model": "m", "input": items, "tools": tools, "stream": True}
        output = _stream(server, body)[-1]["response"]["output"]
        patch, go, shell, search = output
        assert (patch["type"], patch["input"]) == ("custom_tool_call", "*** Begin\n</x>")
        assert (go["type"], go["name"], go["namespace"]) == ("function_call", "go", "mcp__x__")
        assert (shell["type"], shell["action"]["command"]) == ("local_shell_call", ["ls"])
        assert (search["type"], search["arguments"]) == ("tool_search_call", {"query": "x"})
        results = [
            {"type": "custom_tool_call_output", "call_id": patch["call_id"], "output": "out"},
            _result([go]),
            {"type": "local_shell_call_output", "call_id": shell["call_id"], "output": "out"},
            {"type": "tool_search_output", "call_id": search["call_id"], "tools": []},
        ]
        answer = _ask(server, [*items, *output, *results], tools=tools)
        assert answer["output"][0]["content"][0]["text"] == "Done."
        assert _new(answer) < 200


def test_one_call_is_the_same_on_every_endpoint() -> None:
    arguments = {"path": "007", "lines": [1, 2, {"k": None}]}
    schema: dict[str, Any] = {"type": "object", "properties": {"path": {}, "lines": {}}}
    with serve_script(script(F10)) as server:
        answer = _ask(
            server,
            "hello",
            model="deepseek-chat",
            tools=[{"type": "function", "name": "edit", "parameters": schema}],
        )
        chat = httpx.post(
            f"{server.url}/v1/chat/completions",
            json={
                "model": "deepseek-chat",
                "messages": [{"role": "user", "content": "hello"}],
                "tools": [{"type": "function", "function": {"name": "edit", "parameters": schema}}],
            },
        ).json()
    (item,) = answer["output"]
    assert (item["type"], item["name"], json.loads(item["arguments"])) == ("function_call", "edit", arguments)
    (call,) = chat["choices"][0]["message"]["tool_calls"]
    assert call["function"]["arguments"] == item["arguments"]


def test_reasoning_that_is_held_back_does_not_silence_the_stream() -> None:
    played: dict[str, Any] = {"turns": [{"pieces": ["r", {"text": "s", "delay_s": 9}, "</think>", "fine"]}]}
    gate = threading.Event()
    with serve_script(played, gate=gate) as server:
        body = {"model": "m", "input": "hello", "stream": True}
        kept = 0
        with httpx.stream("POST", f"{server.url}/v1/responses", json=body, timeout=60) as response:
            for line in response.iter_lines():
                kept += line.startswith(": working")
                if kept == 3:
                    gate.set()
        assert kept >= 3


def test_headers_and_a_first_event_come_before_the_prompt_is_done() -> None:
    gate = threading.Event()
    with serve_script({"turns": [{"pieces": ["x"], "prefill_block_s": 1}]}, gate=gate) as server:
        body = {"model": "deepseek-chat", "input": "hello", "stream": True}
        seen = []
        with httpx.stream("POST", f"{server.url}/v1/responses", json=body, timeout=60) as response:
            for line in response.iter_lines():
                if line:
                    seen.append(line)
                if line == ": prefill":
                    gate.set()
    assert seen[0] == "event: response.created"
    assert sum(line == "event: response.created" for line in seen) == 1
    assert seen[-2] == "event: response.completed"
