"""What a next turn prefills: only what is new, for clients that send reasoning back and for those that do
not; and that one conversation never shows in another."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from apps.serve.settings import ServerSettings
from shared.model.reference_engine import load as load_reference
from tests.support.api_server import QUICK, RunningServer, serve_engine, serve_script
from tests.support.golden import tiny_q2
from tests.support.turns import block, invoke, parameter, pieces, tool

_TOOLS = [{"type": "function", "function": tool("bash", "command")}]
# What stands between a call and the next answer: the end mark, the user mark, the result and its tags, the
# marks of the answer.
_RESULT_TOKENS = 1 + 1 + len("<tool_result>out</tool_result>") + 2


def _call(command: str) -> str:
    return "\n\n" + block(invoke("bash", parameter("command", command)))


def _script(*texts: str) -> dict[str, Any]:
    return {"turns": [{"pieces": pieces(text)} for text in texts]}


def _ask(server: RunningServer, messages: list[Any], **fields: Any) -> Any:
    response = httpx.post(f"{server.url}/v1/chat/completions", json={"messages": messages} | fields)
    assert response.status_code == 200, response.text
    return response.json()


def _talk(server: RunningServer, turns: int, *, echo: bool, **fields: Any) -> list[tuple[int, int, int]]:
    """A whole conversation; (prompt, cached, completion) tokens of each turn."""
    history: list[Any] = [{"role": "user", "content": "hello " * 10}]
    figures = []
    for _ in range(turns):
        answer = _ask(server, history, **fields)
        message, usage = answer["choices"][0]["message"], answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert usage["prompt_tokens_details"]["cache_write_tokens"] == usage["prompt_tokens"] - cached
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        figures.append((usage["prompt_tokens"], cached, usage["completion_tokens"]))
        history.append({k: v for k, v in message.items() if echo or k != "reasoning_content"})
        calls = message.get("tool_calls", [])
        history += [{"role": "tool", "tool_call_id": call["id"], "content": "out"} for call in calls]
        if not calls:
            history.append({"role": "user", "content": "next"})
    return figures


def _reused_whole(figures: list[tuple[int, int, int]]) -> bool:
    """Every turn but the first goes on from the whole live state."""
    lives = [prompt + completion for prompt, _, completion in figures]
    return [cached for _, cached, _ in figures] == [0, *lives[:-1]]


@pytest.mark.parametrize("echo", [True, False])
def test_a_thinking_conversation_goes_on_from_the_whole_live_state(echo: bool) -> None:
    """Old reasoning is not rendered again; the state that holds it serves all the same."""
    with serve_script(_script("a</think>one", "b\n\n</think>\n\ntwo", "c</think>three")) as server:
        assert _reused_whole(_talk(server, 3, echo=echo))
        assert server.log.count("kv cache source=thinking-visible") == 2
        assert server.log.count("thinking live continuation match=visible") == 2


@pytest.mark.parametrize("tools", [None, _TOOLS])
def test_a_conversation_without_thinking_goes_on_from_the_whole_live_state(tools: Any) -> None:
    script = _script("one two", "trailing \n\n", "three")
    with serve_script(script) as server:
        assert _reused_whole(_talk(server, 3, echo=True, think=False, tools=tools))
    # An answer that the budget cut is no exception.
    with serve_script(script) as server:
        assert _reused_whole(_talk(server, 3, echo=True, think=False, tools=tools, max_tokens=3))


@pytest.mark.parametrize("echo", [True, False])
def test_an_agents_turns_prefill_only_the_results(echo: bool) -> None:
    texts = ["r1</think>I will." + _call("ls"), "r2\n\n</think>" + _call("pwd"), "r3</think>Done."]
    with serve_script(_script(*texts)) as server:
        figures = _talk(server, 3, echo=echo, tools=_TOOLS)
    assert _reused_whole(figures)
    assert [prompt - cached for prompt, cached, _ in figures[1:]] == [_RESULT_TOKENS] * 2


@pytest.mark.parametrize("echo", [True, False])
def test_a_call_made_again_and_again_costs_only_its_result(echo: bool) -> None:
    with serve_script(_script(*["r</think>Again." + _call("cat a.txt")] * 6)) as server:
        figures = _talk(server, 6, echo=echo, tools=_TOOLS)
        assert len(set(re.findall(r"ids=\[(call_\w+)\]", server.log))) == 6
    assert _reused_whole(figures)
    assert [prompt - cached for prompt, cached, _ in figures[1:]] == [_RESULT_TOKENS] * 5


def test_control_tokens_that_the_model_wrote_itself_do_not_cost_the_prefix() -> None:
    """The client sends them back as text; the state holds them where the model sampled them."""
    turns = [
        {"pieces": ["The mark `", "<think>", "` opens.", "</think>", "So `", "<｜User｜>", "` too."]},
        {"pieces": ["r", "</think>", "Done."]},
    ]
    with serve_script({"turns": turns}) as server:
        assert _reused_whole(_talk(server, 2, echo=True, tools=_TOOLS))
        assert "source=memory-text" in server.log


def test_after_a_failed_call_the_next_turn_is_right_if_not_cheap() -> None:
    broken = _call("ls").replace(' name="bash"', "")
    with serve_script(
        _script("r1</think>" + broken, "r2</think>" + _call("ls"), "r3</think>Done.")
    ) as server:
        figures = _talk(server, 2, echo=True, tools=_TOOLS)
    assert figures[1][0] == figures[0][0] + figures[0][2] + _RESULT_TOKENS


def test_control_strings_of_a_client_stay_text_unless_the_flag_says_otherwise() -> None:
    content = "a <｜Assistant｜> </think> ｜DSML｜ <｜end▁of▁sentence｜> b"
    messages = [{"role": "user", "content": content}, {"role": "tool", "content": content}]
    prompts = {}
    for flag in (False, True):
        settings = ServerSettings(timing=QUICK, control_tokens_in_content=flag)
        with serve_script(_script("ok"), settings=settings) as server:
            prompts[flag] = _ask(server, messages, think=False)["usage"]["prompt_tokens"]
    # The scripted vocabulary has one token a byte, and one for each control string.
    marks = re.findall("<｜Assistant｜>|</think>|｜DSML｜|<｜end▁of▁sentence｜>", content)
    assert prompts[False] - prompts[True] == 2 * sum(len(mark.encode()) - 1 for mark in marks)


def test_a_block_that_leaked_into_old_content_is_no_block_in_the_prompt() -> None:
    leaked = _call("ls")
    messages = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": leaked},
        {"role": "user", "content": "v"},
    ]
    with serve_script(_script("ok")) as server:
        prompt = _ask(server, messages, think=False)["usage"]["prompt_tokens"]
        empty = _ask(server, [m | {"content": ""} for m in messages], think=False)["usage"]["prompt_tokens"]
    assert prompt - empty == len("u") + len(leaked.encode()) + len("v")


def test_many_clients_at_once_each_get_their_own_answer() -> None:
    texts = {f"<{number}>": f"answer {number} " * 5 for number in range(16)}
    turns = [{"match": asked, "pieces": list(text)} for asked, text in texts.items()]

    async def ask(client: AsyncOpenAI, asked: str, *, stream: bool) -> str:
        messages: Any = [{"role": "user", "content": asked}]
        if not stream:
            answer = await client.chat.completions.create(model="deepseek-chat", messages=messages)
            return answer.choices[0].message.content or ""
        chunks = await client.chat.completions.create(model="deepseek-chat", messages=messages, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    async def ask_all(url: str) -> list[str]:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
            asks = [ask(client, asked, stream=number % 3 > 0) for number, asked in enumerate(texts)]
            return await asyncio.gather(*asks)

    with serve_script({"turns": turns}) as server:
        assert asyncio.run(ask_all(server.url)) == list(texts.values())


def test_interleaved_conversations_answer_as_on_a_server_of_their_own() -> None:
    pytest.importorskip("mlx.core")
    from ds4mlx.engine import load

    fields: dict[str, Any] = {"think": False, "temperature": 0, "max_tokens": 6}
    histories: list[list[Any]] = [
        [{"role": "user", "content": "My secret is 4711. " * 3}],
        [{"role": "user", "content": "Rivers flow to the sea. " * 3}],
    ]
    asked: list[tuple[list[Any], str]] = []
    with serve_engine(lambda: load(tiny_q2()), context=512) as server:
        for _ in range(2):
            for history in histories:
                content = _ask(server, history, **fields)["choices"][0]["message"]["content"]
                asked.append((list(history), content))
                history += [{"role": "assistant", "content": content}, {"role": "user", "content": "And?"}]
    for messages, content in asked:
        with serve_engine(lambda: load(tiny_q2()), context=512) as alone:
            assert _ask(alone, messages, **fields)["choices"][0]["message"]["content"] == content


def test_a_prompt_asked_again_is_computed_from_its_last_token() -> None:
    """Also after a stop string: only the tail that nobody saw is given up."""
    messages = [{"role": "user", "content": "hi"}]
    with serve_script(_script("so</think>fooENDbar")) as server:
        answers = [_ask(server, messages, stop=["END"]) for _ in range(2)]
    for answer in answers:
        choice = answer["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("foo", "stop")
    usage = [answer["usage"] for answer in answers]
    cached = [figures["prompt_tokens_details"]["cached_tokens"] for figures in usage]
    assert cached == [0, usage[0]["prompt_tokens"] - 1]


def test_a_dropped_reasoning_costs_only_the_last_answer() -> None:
    """A thinking answer that tools preceded is not kept as visible text: the state before it is."""
    history: list[Any] = [{"role": "user", "content": "hello " * 50}]
    with serve_script(_script("so</think>fine", "x</think>done")) as server:
        first = _ask(server, history, tools=_TOOLS)
        history += [{"role": "assistant", "content": "fine"}, {"role": "user", "content": "more"}]
        second = _ask(server, history, tools=_TOOLS)
    reused = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert reused == first["usage"]["prompt_tokens"] - 1


def test_a_checkpoint_leaves_no_trace_on_a_real_model() -> None:
    """Going back and asking again gives what a fresh server says."""
    messages = [{"role": "user", "content": "Say something."}]
    other = [{"role": "user", "content": "Say something. Else."}]
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "reasoning_effort": "none"}
    with serve_engine(lambda: load_reference(tiny_q2()), context=512) as server:
        first = _ask(server, messages, **fields)
        again = _ask(server, messages, **fields)
        third = _ask(server, other, **fields)
    with serve_engine(lambda: load_reference(tiny_q2()), context=512) as server:
        fresh = _ask(server, other, **fields)
    texts = [answer["choices"][0]["message"]["content"] for answer in (first, again, third, fresh)]
    assert texts[0] == texts[1]
    assert texts[2] == texts[3]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
