"""From responses bodies to turns: items, tools in every wire shape, thinking, refusals."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.serve.schema.responses import ResponsesRequest
from apps.serve.schema.responses_ask import ResponsesAsk, parse_responses
from apps.serve.schema.responses_tools import WireTool
from apps.serve.settings import ServerSettings
from apps.serve.turn_request import ModelFacts, ToolChoice
from shared.errors import RequestError
from shared.sampling import Sampling
from shared.scripted.vocabulary import tokenizer
from shared.text.messages import Message, ToolCall
from shared.text.template import TOOLS_BEFORE_SCHEMAS
from tests.support.asks import BIG, refusal, rendered
from tests.support.turns import block, invoke, parameter

_USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]}
_CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}', "status": "completed"}
_OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "out"}
_FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}


def _ask(items: Any = "hello", **fields: Any) -> ResponsesAsk:
    return parse_responses({"input": items} | fields, BIG, ServerSettings())


def _history(*items: Any) -> list[Message]:
    return list(_ask(list(items)).messages)


def _reasoning(*texts: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in texts]}


def _said(text: str, role: str = "assistant") -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text, "annotations": []}]}


def test_a_bare_request_has_the_defaults() -> None:
    ask = _ask()
    assert (ask.kind, ask.model, ask.stream, ask.tools, ask.effort) == (
        "responses",
        "deepseek-v4-flash",
        False,
        None,
        "high",
    )
    assert ask.messages == [Message("user", "hello")]
    assert ask.generation.sampling == Sampling()
    assert ask.generation.max_tokens == 393_216
    assert (ask.input_field, ask.call_id_prefix, ask.sent_choice) == ("input", "call_", "auto")
    assert not ask.shows_reasoning


def test_null_counts_as_absent_everywhere() -> None:
    nulls = dict.fromkeys(name for name in ResponsesRequest.model_fields if name != "input")
    assert _ask("hello", **nulls) == _ask()
    item = dict.fromkeys(("type", "role", "content", "status", "id"))
    assert _ask([item]).messages == [Message("user", "")]


def test_sampling_and_budget() -> None:
    off = {"reasoning": {"effort": "none"}}
    assert _ask(temperature=0.5, top_p=0.9, **off).generation.sampling == Sampling(0.5, 0.9)
    assert _ask(temperature=0.5).generation.sampling == Sampling()
    assert _ask(max_output_tokens=7, max_tokens=9).generation.max_tokens == 7
    assert _ask(max_tokens=9.0).generation.max_tokens == 9


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({"model": "deepseek-chat"}, "none"),
        ({"model": "deepseek-chat", "reasoning": {"effort": "high"}}, "high"),
        ({"model": "deepseek-chat", "reasoning": {"effort": None, "summary": "auto"}}, "none"),
        ({"reasoning": {"effort": "minimal"}}, "low"),
        ({"reasoning": {"effort": "none"}}, "none"),
        ({"thinking": {"type": "disabled"}, "think": False}, "high"),
    ],
)
def test_thinking_is_controlled_by_the_effort_and_the_name_of_the_model(fields: Any, effort: str) -> None:
    # The profile that knows a level below high: where it does not, low is the same.
    official = ModelFacts("Tiny", "deepseek-v4-flash", "official", 393_216, tokenizer())
    assert parse_responses({"input": "q"} | fields, official, ServerSettings()).effort == effort


@pytest.mark.parametrize(
    ("reasoning", "shown"),
    [({"summary": "auto"}, True), ({"generate_summary": "detailed"}, True), ({"summary": "none"}, False)],
)
def test_reasoning_is_shown_to_those_who_ask_for_a_summary(reasoning: Any, shown: bool) -> None:
    assert _ask(reasoning=reasoning).shows_reasoning == shown


class TestHistory:
    def test_a_replayed_call_with_its_reasoning(self) -> None:
        items = [_USER, _reasoning("R"), _CALL, _OUTPUT]
        prompt = rendered(_ask(items, instructions="I"))
        called = block(invoke("f", parameter("a", "1", "false")))
        assert prompt == (
            "<｜begin▁of▁sentence｜>I<｜User｜>q<｜Assistant｜><think>R</think>\n\n"
            f"{called}<｜end▁of▁sentence｜><｜User｜><tool_result>out</tool_result><｜Assistant｜><think>"
        )

    def test_calls_join_the_answer_that_they_follow(self) -> None:
        second = _CALL | {"call_id": "c2"}
        call, other = ToolCall("c1", "f", '{"a":1}'), ToolCall("c2", "f", '{"a":1}')
        expected = Message("assistant", "Sure.", "R", (call, other))
        compaction = {"type": "compaction", "encrypted_content": "x"}
        assert _history(_reasoning("R"), _said("Sure."), _CALL, compaction, second) == [expected]
        # Behind a result a new answer begins.
        result = Message("tool", "out", tool_call_ids=("c1",))
        calls = _history(_CALL, _OUTPUT, _reasoning("S"), second)
        assert calls == [
            Message("assistant", "", tool_calls=(call,)),
            result,
            Message("assistant", "", "S", (other,)),
        ]
        joined = _history(_reasoning("R"), _said("a"), _reasoning("S"), _CALL)
        assert joined == [Message("assistant", "a", "R\nS", (call,))]

    def test_reasoning_that_nothing_follows_is_an_answer_of_its_own(self) -> None:
        both = {"content": [{"type": "reasoning_text", "text": "b"}]}
        lone = Message("assistant", "", "a\nb")
        assert _history(_reasoning("a") | both, _USER) == [lone, Message("user", "q")]
        assert _history(_USER, _reasoning("a", "b")) == [Message("user", "q"), lone]
        # Only the server that encrypted it could read it.
        hidden = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
        assert _history(hidden, _USER) == [Message("user", "q")]

    def test_every_kind_of_call_and_result(self) -> None:
        shell = {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": None}
        items = [
            {"type": "custom_tool_call", "call_id": "1", "name": "patch", "input": "*** {x}"},
            {"type": "local_shell_call", "id": "2", "action": shell},
            {"type": "tool_search_call", "call_id": "3", "arguments": {"query": "x"}},
            {"type": "web_search_call", "id": "4", "action": {"query": "y"}},
            {"type": "image_generation_call", "id": "5"},
            {"type": "function_call", "call_id": "6", "namespace": "mcp__a__", "name": "g"},
        ]
        (message,) = _history(*items)
        assert message.tool_calls == (
            ToolCall("1", "patch", '{"input":"*** {x}"}'),
            ToolCall("2", "local_shell", '{"command":["ls"],"env":{}}'),
            ToolCall("3", "tool_search", '{"query":"x"}'),
            ToolCall("4", "web_search_call", '{"query":"y"}'),
            ToolCall("5", "image_generation_call", "{}"),
            ToolCall("6", "mcp__a__g", "{}"),
        )
        parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
        results = _history(
            {"type": "custom_tool_call_output", "call_id": "1", "output": parts},
            {"type": "local_shell_call_output", "id": "2", "output": '{"stdout":"x"}'},
            {"type": "tool_search_output", "call_id": "3", "tools": [_FUNCTION]},
            {"type": "function_call_output", "call_id": "6", "output": {"ok": [1, None]}},
            {"type": "web_search_call_output", "call_id": "4", "result": "found"},
        )
        assert [message.content for message in results] == [
            "ab",
            '{"stdout":"x"}',
            json.dumps([_FUNCTION], separators=(",", ":")),
            '{"ok":[1,null]}',
            "found",
        ]
        assert {message.role for message in results} == {"tool"}

    @pytest.mark.parametrize(
        ("item", "says"),
        [
            ({"type": "item_reference", "id": "x"}, "item_reference"),
            ({"type": "telepathy"}, "telepathy"),
            ({"type": 5}, "'5'"),
            (_said("x") | {"status": "incomplete"}, "only completed items"),
            (_CALL | {"status": "in_progress"}, "only completed items"),
            ({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}, "input_image"),
            (_OUTPUT | {"output": [{"type": "input_image", "image_url": "x"}]}, "input_image"),
            ({"role": "user", "content": [{"type": "input_text"}]}, "part 0 has no text"),
            ({"role": "user", "content": [5]}, "part 0 must be"),
            ({"role": "user", "content": 5}, "must be a string or an array"),
            ({"role": "tool", "content": "x"}, "'tool' is not one of"),
            ({"type": "function_call", "call_id": "x"}, "has no name"),
            ({"type": "function_call_output", "output": "x"}, "has no call_id"),
            (5, "item 0 must be an object"),
        ],
    )
    def test_what_cannot_be_read_is_named(self, item: Any, says: str) -> None:
        text = refusal(_ask, [item])
        assert text.startswith("input")
        assert says in text


class TestTools:
    def test_namespaces_are_flattened_and_remembered(self) -> None:
        member = {"type": "function", "name": "close", "parameters": {}}
        namespace = {"type": "namespace", "name": "agents_", "description": "d", "tools": [member]}
        ask = _ask(tools=[_FUNCTION, namespace])
        assert ask.tools is not None
        assert list(ask.tools) == [_FUNCTION, member | {"name": "agents_close"}]
        assert ask.wires == {
            "f": WireTool("function", "f"),
            "agents_close": WireTool("function", "close", "agents_"),
        }

    def test_tools_that_the_client_runs_are_functions_to_the_model(self) -> None:
        grammar = {"type": "grammar", "syntax": "lark", "definition": "start: X"}
        tools = [
            {"type": "custom", "name": "patch", "description": "Patches.", "format": grammar},
            {"type": "local_shell"},
            {"type": "tool_search", "execution": "client", "description": "d", "parameters": {"x": 1}},
        ]
        ask = _ask(tools=tools)
        assert ask.tools is not None
        patch, shell, search = ask.tools
        assert patch["description"] == "Patches.\n\nThe input follows this lark grammar:\nstart: X"
        assert ask.tools.properties("patch") == {"input": {"type": "string"}}
        assert ask.tools.required("local_shell") == {"command"}
        assert shell["type"] == "function"
        assert search == {
            "type": "function",
            "name": "tool_search",
            "description": "d",
            "parameters": {"x": 1},
        }
        assert {wire.kind for wire in ask.wires.values()} == {"custom", "local_shell", "tool_search"}

    def test_other_services_tools_are_told_as_they_are(self) -> None:
        hosted = {"type": "web_search", "external_web_access": True}
        assert TOOLS_BEFORE_SCHEMAS + json.dumps(hosted) in rendered(_ask("q", tools=[hosted]))

    def test_found_tools_can_be_called(self) -> None:
        found = {"type": "tool_search_output", "call_id": "3", "tools": [_FUNCTION]}
        search = {"type": "tool_search_call", "call_id": "3", "arguments": {"query": "x"}}
        ask = _ask([search, found])
        assert ask.tools is not None
        assert ask.tools.names() == {"f"}
        # Declared again it stays one tool.
        assert len(_ask([search, found], tools=[_FUNCTION]).tools or ()) == 1

    @pytest.mark.parametrize(
        ("tool", "says"),
        [
            ({"type": "function"}, "has no name"),
            ({"type": "custom"}, "'custom' has no name"),
            ({"type": "namespace", "name": "n"}, "has no array of tools"),
            ({"type": "namespace", "name": "n", "tools": [5]}, "has no array of tools"),
            ({"type": "namespace", "name": "n", "tools": [{"type": "namespace"}]}, "holds another one"),
        ],
    )
    def test_tools_without_a_name_are_refused(self, tool: Any, says: str) -> None:
        assert says in refusal(_ask, tools=[tool])

    @pytest.mark.parametrize(
        ("choice", "expected"),
        [
            ("auto", ToolChoice()),
            ("required", ToolChoice("required")),
            ({"type": "function", "name": "f"}, ToolChoice("named", "f")),
            ({"type": "function", "name": "close", "namespace": "n_"}, ToolChoice("named", "n_close")),
            ({"type": "custom", "name": "patch"}, ToolChoice("named", "patch")),
            ({"type": "local_shell"}, ToolChoice("named", "local_shell")),
        ],
    )
    def test_the_choice_among_them(self, choice: Any, expected: ToolChoice) -> None:
        namespace = {"type": "namespace", "name": "n_", "tools": [{"type": "function", "name": "close"}]}
        tools = [_FUNCTION, namespace, {"type": "custom", "name": "patch"}, {"type": "local_shell"}]
        ask = _ask(tools=tools, tool_choice=choice)
        assert (ask.tool_choice, ask.sent_choice) == (expected, choice)
        assert _ask(tools=tools, tool_choice="none").tools is None
        assert "no tool" in refusal(_ask, tools=tools, tool_choice={"type": "function", "name": "g"})
        assert "not supported" in refusal(_ask, tools=tools, tool_choice={"type": "web_search"})


@pytest.mark.parametrize("field", ["previous_response_id", "conversation", "prompt", "background"])
def test_what_would_have_to_be_stored_is_refused(field: str) -> None:
    assert refusal(_ask, **{field: True if field == "background" else "x"}).startswith(f"{field}: no ")


def test_an_input_is_needed() -> None:
    with pytest.raises(RequestError, match="input"):
        parse_responses({}, BIG, ServerSettings())
    assert "at least one item" in refusal(_ask, [])
    assert "must be a string or an array" in refusal(_ask, 5)


def test_the_form_of_the_answer() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    ask = _ask(text={"format": {"type": "json_schema", "name": "n", "schema": schema}, "verbosity": "low"})
    assert ask.json is not None
    assert _ask(text={"format": {"type": "text"}}).json is None
    assert "text.format" in refusal(_ask, text={"format": {"type": "yaml"}})
    assert "top_logprobs" in refusal(_ask, top_logprobs=3)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = sorted(ResponsesRequest.model_fields)
_KINDS = [
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "local_shell_call",
    "custom_tool_call",
]
_ITEM = st.dictionaries(
    st.sampled_from(
        ["role", "content", "summary", "call_id", "id", "name", "input", "action", "output", "tools"]
    ),
    _JSON,
    max_size=5,
).flatmap(lambda item: st.sampled_from(_KINDS).map(lambda kind: item | {"type": kind}))


@given(st.dictionaries(st.sampled_from(_FIELDS), _JSON, max_size=4), st.lists(_ITEM, max_size=3) | _JSON)
def test_no_body_raises_anything_but_a_refusal(fields: dict[str, Any], items: Any) -> None:
    with contextlib.suppress(RequestError):
        parse_responses(fields | {"input": items}, BIG, ServerSettings())
