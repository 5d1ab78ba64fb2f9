"""What a next messages request costs: only what is new, whatever its client makes of the last answer."""

from __future__ import annotations

import copy
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from apps.serve.settings import DiskSettings, ServerSettings
from shared.kv.store.policy import StoreSettings
from tests.support.api_server import QUICK, RunningServer, serve_script, wait_for
from tests.support.conversations import call, script, turn
from tests.support.turns import block, invoke, parameter

_CLIENTS = Path(__file__).parent / "clients"
_TOOLS = [{"name": "bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}]
_OFF = {"type": "disabled"}
_USER = {"role": "user", "content": "hello " * 20}
# Recorded with a misspelt wrapper: such a block is never rendered again as it was sampled.
_MISSPELT = "\n\n" + block(invoke("bash", parameter("command", "ls")), wrapper="function_calls")
# The end mark, the user mark, the result and its tags, two marks of the answer.
_NEW = 1 + 1 + len("<tool_result>out</tool_result>") + 2


def _post(server: RunningServer, messages: list[Any], **fields: Any) -> httpx.Response:
    body = {"model": "m", "max_tokens": 500, "tools": _TOOLS, "messages": messages} | fields
    return httpx.post(f"{server.url}/v1/messages", json=body, timeout=30)


def _ask(server: RunningServer, messages: list[Any], **fields: Any) -> Any:
    response = _post(server, messages, **fields)
    assert response.status_code == 200, response.text
    return response.json()


def _prompt(answer: Any) -> int:
    usage = answer["usage"]
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    total: int = sum(usage[name] for name in names)
    return total


def _cached(answer: Any) -> int:
    cached: int = answer["usage"]["cache_read_input_tokens"]
    return cached


def _live(answer: Any) -> int:
    """Tokens of the state after the answer."""
    completion: int = answer["usage"]["output_tokens"]
    return _prompt(answer) + completion


def _results(answer: Any, text: str = "out") -> dict[str, Any]:
    """What a client sends for the calls of an answer."""
    ids = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
    assert ids
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": each, "content": text} for each in ids],
    }


def _said(answer: Any, *, thinking: bool = True) -> dict[str, Any]:
    """The answer as its client sends it back."""
    content = [block for block in answer["content"] if thinking or block["type"] != "thinking"]
    return {"role": "assistant", "content": content}


# --- a coding agent ------------------------------------------------------------------------------------


def _recorded(number: int) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        (_CLIENTS / f"claude-code-turn{number}.json").read_text(encoding="utf-8")
    )
    return document


def _streamed(server: RunningServer, request: dict[str, Any], body: dict[str, Any]) -> Any:
    """A streamed answer as the client puts it together."""
    response = httpx.post(server.url + request["path"], json=body, headers=request["headers"], timeout=30)
    assert response.status_code == 200, response.text
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    answer: dict[str, Any] = {}
    for event in events:
        if event["type"] == "message_start":
            answer = event["message"]
        elif event["type"] == "content_block_start":
            answer["content"].append(event["content_block"])
        elif event["type"] == "content_block_delta":
            content = answer["content"][event["index"]]
            for key, value in event["delta"].items():
                if key == "partial_json":
                    content["input"] = (content["input"] or "") + value
                elif key != "type":
                    content[key] += value
        elif event["type"] == "content_block_stop":
            content = answer["content"][event["index"]]
            if content["type"] == "tool_use":
                content["input"] = json.loads(content["input"])
        elif event["type"] == "message_delta":
            answer |= event["delta"]
            answer["usage"] |= event["usage"]
    return answer


@pytest.mark.parametrize("thinking_comes_back", [True, False])
@pytest.mark.parametrize("nonce", ["cc_version=2.1.197.0cf", "cc_version=2.1.198.fff; cch=0aaa9"])
def test_the_second_turn_of_a_coding_agent_computes_only_what_is_new(
    thinking_comes_back: bool, nonce: str
) -> None:
    """As recorded: a call of a tool, then its result, and an account line that may differ each time."""
    request = _recorded(1)
    sampled = "I run it.</think>" + call("echo hello-from-tool").replace('"bash"', '"Bash"')
    with serve_script(script(sampled, "Good.</think>It says hello."), context=40_000) as server:
        first = _streamed(server, request, request["body"])
        second = copy.deepcopy(request["body"]) | _recorded(2)["body"]
        second["system"][0]["text"] = f"x-anthropic-billing-header: {nonce}; cc_entrypoint=sdk-cli;"
        second["messages"][2] = _said(first, thinking=thinking_comes_back)
        result = second["messages"][3]["content"][0]
        result["tool_use_id"] = first["content"][-1]["id"]
        answer = _streamed(server, request, second)
        log = server.log
    assert first["stop_reason"] == "tool_use"
    assert first["content"][-1]["input"] == {"command": "echo hello-from-tool", "n": [1, 2]}
    assert answer["content"][-1] == {"type": "text", "text": "It says hello."}
    assert _cached(answer) == _live(first)
    new = 1 + 1 + len(f"<tool_result>{result['content']}</tool_result>") + 2
    assert _prompt(answer) - _cached(answer) == new
    assert re.findall(r"prefilled=(\d+)", log)[1] == str(new)


def test_an_account_line_that_is_new_each_time_costs_nothing() -> None:
    def ask(server: RunningServer, nonce: str) -> Any:
        system = [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={nonce};"},
            {"type": "text", "text": "You are helpful."},
        ]
        return _ask(server, [_USER], system=system)

    with serve_script(script("a</think>b")) as server:
        first, second = ask(server, "36ee5"), ask(server, "0aaa9")
        # In what a user writes the same words are words.
        spoken = [{"role": "user", "content": "x-anthropic-billing-header: cch=36ee5;"}]
        counts = [_ask(server, spoken)["usage"], _ask(server, [{"role": "user", "content": ""}])["usage"]]
    assert _prompt(first) == _prompt(second) == _cached(second) + 1
    prompts = [_prompt({"usage": usage}) for usage in counts]
    assert prompts[0] - prompts[1] == len("x-anthropic-billing-header: cch=36ee5;")


def test_a_restart_forgets_neither_the_state_nor_the_call(tmp_path: Path) -> None:
    store = StoreSettings(min_tokens=32, trim_tokens=4, align_tokens=16, durable=False)
    settings = ServerSettings(timing=QUICK, disk=DiskSettings(tmp_path, store))
    with serve_script(script(f"plan</think>Sure.{call('ls')}"), settings=settings) as server:
        first = _ask(server, [_USER])
    with serve_script(script("so</think>done"), settings=settings) as server:
        second = _ask(server, [_USER, _said(first, thinking=False), _results(first)])
        assert "source=disk-text" in server.log
    assert (_cached(second), _prompt(second)) == (_live(first), _live(first) + _NEW)


# --- results belong to the answer whose calls they name -------------------------------------------------


@pytest.mark.parametrize("sampled", [call("ls"), _MISSPELT])
@pytest.mark.parametrize("thinking_comes_back", [True, False])
def test_a_result_goes_on_behind_its_call_however_the_client_repeats_it(
    sampled: str, thinking_comes_back: bool
) -> None:
    with serve_script(script(f"plan</think>Sure.{sampled}", "so</think>done")) as server:
        first = _ask(server, [_USER])
        said = _said(first, thinking=thinking_comes_back)
        said["content"][-1]["input"] = dict(reversed(said["content"][-1]["input"].items()))
        second = _ask(server, [_USER, said, _results(first)])
    assert second["content"][-1]["text"] == "done"
    assert _cached(second) == _live(first)
    assert _prompt(second) == _live(first) + _NEW


def test_an_edited_history_is_not_taken_for_the_live_one() -> None:
    with serve_script(script(f"plan</think>Sure.{_MISSPELT}", "so</think>done")) as server:
        first = _ask(server, [_USER])
        other = {"role": "user", "content": "something else"}
        second = _ask(server, [other, _said(first), _results(first)])
    assert _cached(second) < _prompt(first) - len(_USER["content"])


def test_a_result_alone_goes_on_from_the_live_answer() -> None:
    with serve_script(script(f"plan</think>Sure.{call('ls')}", "so</think>done", "x</think>y")) as server:
        first = _ask(server, [_USER])
        second = _ask(server, [_results(first)])
        log = server.log
        # Another conversation takes its place: now nobody knows the call.
        _ask(server, [{"role": "user", "content": "other"}])
        lost = _post(server, [_results(first)])
    assert second["content"][-1]["text"] == "done"
    assert (_cached(second), _prompt(second)) == (_live(first), _live(first) + _NEW)
    assert "source=anthropic-tool-output" in log
    assert lost.status_code == 400


def test_a_result_of_a_call_that_nobody_made_is_refused() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_unknown", "content": "x"}
    with serve_script(script("a</think>b")) as server:
        alone = _post(server, [{"role": "user", "content": [result]}])
        behind = _post(
            server, [_USER, {"role": "assistant", "content": "hi"}, {"role": "user", "content": [result]}]
        )
        asked = _post(server, [_USER])
    for refused in (alone, behind):
        assert refused.status_code == 400
        error = refused.json()
        assert error["type"] == "error"
        assert error["error"]["type"] == "invalid_request_error"
        assert "send the whole history" in error["error"]["message"]
    assert asked.status_code == 200


def test_a_live_answer_that_is_lost_while_its_results_wait_is_a_conflict() -> None:
    gate = threading.Event()
    turns = [
        turn(f"plan</think>Sure.{call('ls')}"),
        {"match": "slow", "prefill_block_s": 1, "pieces": ["a", "</think>", *"b" * 40]},
        {"match": "other", "pieces": ["b"]},
    ]
    settings = ServerSettings(timing=QUICK, sessions=2)
    with (
        serve_script({"turns": turns}, gate=gate, settings=settings) as server,
        ThreadPoolExecutor(3) as pool,
    ):
        first = _ask(server, [_USER])
        # It works on the other session, and holds the engine until the gate opens.
        slow = pool.submit(_post, server, [{"role": "user", "content": "slow"}], tools=None)
        wait_for(lambda: server.worker.busy)
        other = pool.submit(_post, server, [{"role": "user", "content": "other"}], tools=None, thinking=_OFF)
        wait_for(lambda: server.worker.queued + server.worker.running == 2)
        result = pool.submit(_post, server, [_results(first)])
        wait_for(lambda: server.worker.queued + server.worker.running == 3)
        gate.set()
        assert slow.result().status_code == other.result().status_code == 200
        lost = result.result()
        log = server.log
    assert lost.status_code == 409, log
    assert lost.json()["type"] == "error"
