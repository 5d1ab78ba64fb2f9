"""From chat bodies to turns: leniency, refusals, sampling, tools."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.serve.schema.chat import ChatRequest
from apps.serve.schema.chat_ask import parse_chat
from apps.serve.settings import ServerSettings
from apps.serve.turn_request import Ask, ModelFacts
from shared.errors import RequestError
from shared.sampling import Sampling
from shared.scripted.vocabulary import tokenizer
from shared.text.messages import Message, ToolCall
from shared.token_choice import Penalties

_MODEL = ModelFacts("Tiny", "deepseek-v4-flash", "official", 32768, tokenizer())
_HELLO = [{"role": "user", "content": "hello"}]
_TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}


def _ask(**body: Any) -> Ask:
    return parse_chat({"messages": _HELLO} | body, _MODEL, ServerSettings())


def test_a_bare_request_has_the_defaults() -> None:
    ask = _ask()
    assert ask.model == "deepseek-v4-flash"
    assert not ask.stream
    assert ask.tools is None
    assert ask.effort == "high"
    assert ask.generation.sampling == Sampling(1.0, 1.0, 0.05, 0)
    assert ask.generation.max_tokens == 393_216
    assert ask.generation.seed is None
    assert ask.messages == [Message("user", "hello")]


def test_null_counts_as_absent_everywhere() -> None:
    nulls = dict.fromkeys(name for name in ChatRequest.model_fields if name != "messages")
    message = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None, "name": None}
    ask = parse_chat({"messages": [message]} | nulls, _MODEL, ServerSettings())
    assert ask.messages == [Message("user", "")]
    assert ask.generation.max_tokens == 393_216
    assert not ask.include_usage


def test_sampling_is_taken_without_thinking_and_brought_into_range() -> None:
    asked = {"temperature": 0.5, "top_p": 0.9, "top_k": 5000, "min_p": -1, "seed": 7}
    generation = _ask(think=False, **asked).generation
    assert generation.sampling == Sampling(0.5, 0.9, 0.0, 1024)
    assert generation.seed == 7
    assert _ask(think=False, top_p=0, top_k=-3, seed=-1).generation.sampling == Sampling()


def test_thinking_overrides_sampling_but_an_explicit_zero_temperature_holds() -> None:
    assert _ask(temperature=0.5, top_p=0.1).generation.sampling == Sampling()
    assert _ask(temperature=0).generation.sampling.greedy


def test_budgets() -> None:
    assert _ask(max_tokens=5).generation.max_tokens == 5
    assert _ask(max_tokens=5, max_completion_tokens=7).generation.max_tokens == 7
    assert _ask(max_tokens=5.0, seed=7.0).generation.max_tokens == 5
    assert _ask(max_tokens=-5).generation.max_tokens == 0


def test_stop_strings() -> None:
    assert _ask(stop="END").generation.stop == ("END",)
    assert _ask(stop=["a", "", 5, None, "b"]).generation.stop == ("a", "b")
    assert _ask(stop="").generation.stop == ()
    with pytest.raises(RequestError, match="stop: must be a string or an array"):
        _ask(stop=5)


def test_content_arrays_are_joined_and_images_are_named() -> None:
    parts = [{"type": "text", "text": "a"}, "b", {"type": "refusal", "refusal": "x"}, {"text": "c"}]
    assert _ask(messages=[{"content": parts}]).messages == [Message("user", "abc")]
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    with pytest.raises(RequestError, match="part 0 has type image_url: this model reads no images"):
        _ask(messages=[{"content": [image]}])


def test_assistant_calls_and_results() -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "c2", "function": {"name": "g", "arguments": {"b": "é"}}},
        {"id": "c3", "function": {"name": "lost"}},
        {"id": "c4", "function": {"arguments": "{}"}},
        {"id": "c5"},
    ]
    history = [
        {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "out"},
    ]
    assert _ask(messages=history).messages == [
        Message(
            "assistant",
            "",
            reasoning="r",
            tool_calls=(ToolCall("c1", "f", '{"a": 1}'), ToolCall("c2", "g", '{"b":"é"}')),
        ),
        Message("tool", "out", tool_call_ids=("c1",)),
    ]


def test_tools_are_unwrapped_and_a_choice_of_none_disables_them() -> None:
    direct = {"name": "read", "input_schema": {}}
    tools = _ask(tools=[_TOOL, direct], tool_choice="auto").tools
    assert tools is not None
    assert list(tools) == [_TOOL["function"], direct]
    assert _ask(tools=[_TOOL], tool_choice="none").tools is None
    assert _ask(tools=[]).tools is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("n", 0),
        ("logit_bias", {"5": 1}),
        ("logprobs", 1),
        ("top_logprobs", 3),
        ("presence_penalty", "much"),
        ("frequency_penalty", True),
        ("response_format", {}),
        ("response_format", {"type": "xml"}),
        ("response_format", {"type": "json_schema"}),
        ("response_format", {"type": "json_schema", "json_schema": {}}),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": []}}),
        ("response_format", {"type": 5}),
        ("messages", []),
        ("messages", None),
        ("messages", "hi"),
        ("messages", [5]),
        ("messages", [{"role": 5}]),
        ("messages", [{"content": 5}]),
        ("messages", [{"content": [5]}]),
        ("messages", [{"content": [{"type": "text"}]}]),
        ("messages", [{"tool_calls": {}}]),
        ("temperature", "hot"),
        ("temperature", True),
        ("max_tokens", "5"),
        ("max_tokens", 5.5),
        ("stream", "yes"),
        ("stream", 1),
        ("seed", "x"),
        ("tools", {}),
        ("tools", [5]),
        ("tools", [{"type": "function", "function": "f"}]),
        ("tools", [{"type": "function", "function": {}}]),
        ("tool_choice", 5),
        ("reasoning_effort", "ultra"),
        ("reasoning_effort", 5),
        ("model", 5),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        _ask(**{field: value})
    assert caught.value.status == 400
    assert caught.value.param == field
    assert field in str(caught.value) or "effort" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_call_can_be_required_only_of_a_tool_that_is_offered() -> None:
    named = {"type": "function", "function": {"name": "bash"}}
    other = {"type": "function", "function": {"name": "read"}}
    both = [_TOOL, {"name": "read"}]
    for choice, names in (("required", {"bash", "read"}), (named, {"bash"}), ("auto", set()), (None, set())):
        ask = _ask(tools=both, tool_choice=choice)
        assert ask.tool_choice.required(ask.tools) == names
        assert ask.tools is not None
        assert ask.tools.names() == {"bash", "read"}
    for tools, choice in (([_TOOL], other), ([], "required"), (None, named), ([{"type": "web"}], "required")):
        with pytest.raises(RequestError, match="tool_choice") as caught:
            _ask(tools=tools, tool_choice=choice)
        assert caught.value.param == "tool_choice"


def test_penalties_hold_in_every_mode_and_within_their_range() -> None:
    for think in (True, False):
        asked = _ask(think=think, frequency_penalty=0.5, presence_penalty=-1)
        assert asked.generation.penalties == Penalties(0.5, -1)
    assert _ask(frequency_penalty=9, presence_penalty=-9).generation.penalties == Penalties(2, -2)
    assert not _ask().generation.penalties


def test_log_probabilities() -> None:
    assert _ask().generation.top_logprobs is None
    assert _ask(logprobs=False, top_logprobs=0).generation.top_logprobs is None
    assert _ask(logprobs=True).generation.top_logprobs == 0
    assert _ask(logprobs=True, top_logprobs=20).generation.top_logprobs == 20
    for count in (21, -1):
        with pytest.raises(RequestError, match="top_logprobs"):
            _ask(logprobs=True, top_logprobs=count)


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = st.sampled_from(sorted(ChatRequest.model_fields))


@given(st.dictionaries(_FIELDS, _JUNK, max_size=4))
def test_any_field_value_gives_an_ask_or_a_request_error(fields: dict[str, Any]) -> None:
    with contextlib.suppress(RequestError):
        _ask(**fields)
