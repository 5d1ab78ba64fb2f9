"""`--trace` on a server: what the file says of turns of every kind, and that it never costs an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from apps.serve.trace import ServerTrace
from apps.trace import TraceFile
from tests.support.api_server import RunningServer, serve_script, wait_for
from tests.support.clock import FakeClock
from tests.support.gate import Gate
from tests.support.turns import block, invoke, parameter, pieces, tool

_TOOLS = [{"type": "function", "function": tool("bash", "command")}]
_CALL = "\n\n" + block(invoke("bash", parameter("command", "ls")))


@contextmanager
def _tracing(path: Path, *turns: Any, **options: Any) -> Iterator[RunningServer]:
    """A server whose trace has standing clocks."""
    said: list[str] = []
    with TraceFile(path, say=said.append) as file:
        noon = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
        trace = ServerTrace(file, now=lambda: noon, clock=FakeClock())
        with serve_script({"turns": list(turns)}, trace=trace, **options) as server:
            yield server
            server.wait_idle()
    assert not said


def _turn(text: str, **fields: Any) -> dict[str, Any]:
    return {"pieces": pieces(text)} | fields


def _ask(server: RunningServer, content: str | list[Any], **fields: Any) -> httpx.Response:
    messages = [{"role": "user", "content": content}] if isinstance(content, str) else content
    response = httpx.post(f"{server.url}/v1/chat/completions", json={"messages": messages} | fields)
    server.wait_idle()
    return response


def _entries(path: Path) -> list[str]:
    """The entries, each with its header and its end mark."""
    text = path.read_text()
    found = re.findall(r"===== request \d+ .*?\n===== end of request \d+: .*? =====\n\n", text, re.DOTALL)
    assert "".join(found) == text
    return found


def _generated(entry: str) -> tuple[str, list[str]]:
    """What the model wrote, without line ends, and the notes within it."""
    generated = entry.partition("--- generated ---\n")[2].partition("--- parsed ---")[0]
    note = r"\[0.000 s: (.*)\]\n"
    return re.sub(note, "", generated).replace("\n", ""), re.findall(note, generated)


def test_a_plain_turn_is_told_from_its_request_to_its_end(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "grüß\n"}], "seed": 7, "max_tokens": 50}
    with _tracing(tmp_path / "trace", _turn("why</think>Hé")) as server:
        sent = json.dumps(body, ensure_ascii=False).encode()
        assert httpx.post(f"{server.url}/v1/chat/completions", content=sent).status_code == 200
    (entry,) = _entries(tmp_path / "trace")
    request_id = re.search("req=(req_[0-9a-f]+)", entry)
    assert request_id is not None
    prompt = entry.partition(" bytes ---\n<")[2].partition("\n---")[0]
    prompt = "<" + prompt
    assert prompt.startswith("<｜begin▁of▁sentence｜>")
    assert prompt.endswith("<｜User｜>grüß\n<｜Assistant｜><think>")
    size = re.search(r"\nprompt=(\d+) max_tokens=50 temperature=1.0 ", entry)
    assert size is not None
    assert entry == (
        f"===== request 1 2026-01-02 12:00:00.000+00:00 {request_id[0]} =====\n"
        'kind=chat model="m" stream=no include_usage=no tools=0 think=high\n'
        f"prompt={size[1]} max_tokens=50 temperature=1.0 top_p=1.0 min_p=0.05 top_k=0 seed=7 stop=[]\n"
        "--- cache decision ---\n"
        f"live=0 prompt={size[1]} common=0 reusable=no reason=no-live-checkpoint\n"
        "replay: mem=0 disk=0 canonical=0 missing_ids=0\n"
        f"source=miss slot=0 effective={size[1]} cached=0 disk=0\n"
        f"--- request json: {len(sent)} bytes ---\n{sent.decode()}\n"
        f"--- prompt: {len(prompt.encode())} bytes ---\n{prompt}\n"
        "--- generated ---\n"
        f"[0.000 s: prefill done: 0 tokens reused, {size[1]} computed]\n"
        "why</think>Hé\n"
        "--- parsed ---\n"
        "finish=stop cause=eos tokens=7 reasoning_tokens=4 tool_start=no tool_end=no calls=0 seconds=0.000\n"
        "--- reasoning: 3 bytes ---\nwhy\n--- content: 3 bytes ---\nHé\n"
        "===== end of request 1: finished, 0.000 s =====\n\n"
    )


def test_a_conversation_with_tools(tmp_path: Path) -> None:
    """Calls, their replay, what was reused, notes among the text."""
    long = "x" * 130
    calling = {"pieces": ["r", "</think>", *long, *_turn(_CALL)["pieces"]]}
    with _tracing(tmp_path / "trace", calling, _turn("s</think>Done.")) as server:
        answer = _ask(server, "hi", tools=_TOOLS).json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "out"}
        foreign = answer | {"tool_calls": [answer["tool_calls"][0] | {"id": "call_x"}]}
        history = [{"role": "user", "content": "hi"}, answer, result]
        assert _ask(server, history, tools=_TOOLS).status_code == 200
        assert _ask(server, [history[0], foreign, result], tools=_TOOLS).status_code == 200
    first, second, third = _entries(tmp_path / "trace")
    call_id = answer["tool_calls"][0]["id"]
    assert "tools=1 think=high" in first
    text, notes = _generated(first)
    assert text == (f"r</think>{long}" + _CALL).replace("\n", "")
    assert notes[1:] == ["128 tokens", "tool block entered", "tool block closed"]
    # The mark that ends the thinking is one token, every character is one too.
    assert f"\nr</think>{'x' * 126}\n[0.000 s: 128 tokens]\nxxxx\n" in first
    assert "finish=tool_calls cause=tool" in first
    assert "tool_start=yes tool_end=yes calls=1" in first
    assert f'\ncall 0: id={call_id} name="bash" arguments="{{\\"command\\":\\"ls\\"}}"\n' in first
    assert "reusable=yes reason=live-prefix-match\nreplay: mem=1 disk=0 canonical=0 missing_ids=0\n" in second
    assert "source=memory-token" in second
    assert "replay: mem=0 disk=0 canonical=1 missing_ids=1\n" in third


def test_a_miss_shows_both_sides_around_the_first_difference(tmp_path: Path) -> None:
    with _tracing(tmp_path / "trace", _turn("ok"), _turn("ok"), _turn("ok")) as server:
        for content in ("A long story: one two three", 'A long story: "ne', "A long story: "):
            assert _ask(server, content, think=False).status_code == 200
    _, second, third = _entries(tmp_path / "trace")
    common = re.search(r"common=(\d+) reusable=no reason=token-mismatch", second)
    assert common is not None
    at = int(common[1])
    before = "".join(
        f'  {at - 8 + index} {ord(character)} "{character}"\n' for index, character in enumerate(" story: ")
    )
    live = before + "".join(
        f'{" >"[index == 0]} {at + index} {ord(character)} "{character}"\n'
        for index, character in enumerate("one two ")
    )
    assert (
        f'live around {at}:\n{live}prompt around {at}:\n{before}> {at} 34 "\\""\n  {at + 1} 110 "n"\n'
        in second
    )
    assert "\nsource=memory-checkpoint " in second
    # The prompt's marks differ from the live text: also a mismatch, at the end of what was asked.
    assert "reason=token-mismatch" in third


def test_a_second_attempt_is_told_with_what_the_model_was_told(tmp_path: Path) -> None:
    broken = _CALL.replace(' name="bash"', "")
    turns = [_turn("r</think>" + broken), _turn("q</think>" + _CALL)]
    with _tracing(tmp_path / "trace", *turns) as server:
        assert _ask(server, "hi", tools=_TOOLS).status_code == 200
    (entry,) = _entries(tmp_path / "trace")
    first, again = entry.split("--- generated again ---\n")
    text, notes = _generated(first)
    assert text.startswith(("r</think>" + broken).replace("\n", ""))
    assert notes[1:3] == ["tool block entered", "tool block closed"]
    assert "recovery: the tool call could not be read" in first
    assert "The tool call was malformed and was not executed." in first
    assert again.startswith("q</think>")
    assert "tool_start=yes tool_end=yes calls=1" in again
    assert again.count("--- parsed ---") == 1
    assert "finished" in again


def test_a_client_that_leaves_and_an_engine_that_fails_get_their_end_mark(tmp_path: Path) -> None:
    gate = Gate()
    turns = [
        _turn("ab", piece_delay_s=1.0),
        _turn("</think>never", fail={"at": "decode", "after": 1}),
        _turn("never", fail={"at": "prefill"}),
        _turn("</think>good"),
    ]
    path = tmp_path / "trace"
    with _tracing(path, *turns, gate=gate) as server:
        with httpx.stream(
            "POST",
            f"{server.url}/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "q"}], "stream": True},
        ):
            wait_for(gate.reached.is_set)  # the first token is being chosen
        wait_for(lambda: "client left" in server.log)
        gate.set()
        server.wait_idle()
        assert [_ask(server, "q").status_code for _ in range(3)] == [500, 500, 200]
    ends = re.findall("===== end of request (.*), 0.000 s =====", path.read_text())
    assert len(_entries(path)) == 4
    assert ends[0] == "1: cancelled during decode"
    assert ends[1].startswith("2: failed during decode: EngineFault: ")
    assert ends[2].startswith("3: failed during prefill: EngineFault: ")
    assert ends[3] == "4: finished"


def test_what_is_refused_before_it_is_a_turn_leaves_no_entry(tmp_path: Path) -> None:
    with _tracing(tmp_path / "trace", _turn("ok"), context=64) as server:
        assert _ask(server, "long " * 100, stream=True).status_code == 400
        assert _ask(server, "x", n=2).status_code == 400
    assert (tmp_path / "trace").read_text() == ""


def test_a_fault_of_ours_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("oops")

    with _tracing(tmp_path / "trace", _turn("ok")) as server:
        monkeypatch.setattr("shared.kv.live.slot.LiveSlot.sampled", fail)
        assert _ask(server, "q").status_code == 500
    (entry,) = _entries(tmp_path / "trace")
    assert "internal error: RuntimeError: oops (test_trace.py:" in entry


def test_a_full_disk_costs_one_warning_and_no_answer() -> None:
    said: list[str] = []
    with (
        TraceFile(Path("/dev/full"), say=said.append) as file,
        serve_script({"turns": [_turn("ok")]}, trace=ServerTrace(file)) as server,
    ):
        answers = [_ask(server, "q", think=False).json() for _ in range(3)]
    assert [answer["choices"][0]["message"]["content"] for answer in answers] == ["ok"] * 3
    assert said == ["the trace ends here: cannot write /dev/full: No space left on device"]
