"""Which calls the results in a history belong to, and what a prompt that ends with them is."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from apps.serve.tool_results import check_results, tool_tail
from shared.errors import RequestError
from shared.kv.live.tool_tail import ToolTail
from shared.text.messages import Message, ToolCall
from shared.text.segments import join
from shared.text.template import render_chat

_USER = Message("user", "q")
_SYSTEM = Message("system", "s")
_CALLS = Message("assistant", "", tool_calls=(ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}")))


def _result(call_id: str, *, continues: bool = False) -> Message:
    return Message("tool", "out", tool_call_ids=(call_id,), continues=continues)


def _tail(*messages: Message) -> ToolTail | None:
    return tool_tail(messages, "responses-tool-output", effort="high")


class TestTail:
    def test_the_ids_are_those_of_the_answer_before(self) -> None:
        tail = _tail(_SYSTEM, _USER, _CALLS, _result("a"))
        assert tail is not None
        assert tail.calls == {"a", "b"}
        assert not tail.alone

    def test_it_renders_to_the_end_of_the_whole_prompt(self) -> None:
        more = Message("user", "more", continues=True)
        history = [_SYSTEM, _USER, _CALLS, _result("a"), _result("b", continues=True), more]
        tail = _tail(*history)
        assert tail is not None
        assert (
            tail.rendered
            == (
                "<｜end▁of▁sentence｜><｜User｜><tool_result>out</tool_result><tool_result>out</tool_result>more"
                "<｜Assistant｜><think>"
            ).encode()
        )
        whole = join(render_chat(history, None, effort="high", profile="preview"))
        assert whole.endswith(tail.rendered)

    def test_alone_it_goes_by_the_results_own_ids(self) -> None:
        tail = _tail(_SYSTEM, _result("a"), _result("b"))
        assert tail is not None
        assert tail.calls == {"a", "b"}
        assert tail.alone

    def test_a_text_before_the_results_of_a_turn_belongs_to_it(self) -> None:
        tail = _tail(_USER, _CALLS, Message("user", "look: "), _result("a", continues=True))
        assert tail is not None
        assert b"look: <tool_result>out</tool_result>" in tail.rendered
        assert tail.calls == {"a", "b"}

    @pytest.mark.parametrize(
        "history",
        [
            [_USER],
            [_CALLS, _result("a"), _USER, Message("user", "x", continues=True)],
            [_USER, _CALLS],
            [_CALLS, _result("a"), _USER],
            [_USER, _result("a")],
            [_USER, Message("assistant", "no calls"), _result("a")],
            [_USER, Message("user", "x", continues=True)],
            [],
        ],
    )
    def test_any_other_end_is_none(self, history: list[Message]) -> None:
        assert _tail(*history) is None


class TestCheck:
    @staticmethod
    def check(*messages: Message, live: Collection[str] = ()) -> None:
        check_results(messages, lambda calls: set(calls) <= set(live), field="input")

    def test_a_result_needs_its_call_before_it_or_a_live_one(self) -> None:
        self.check(_USER, _CALLS, _result("a"), _result("b"))
        self.check(_result("c"), live=["c"])
        self.check(_CALLS, _result("a"), _result("c"), live=["c"])

    @pytest.mark.parametrize("history", [[_result("x")], [_CALLS, _result("x")], [_result("a"), _CALLS]])
    def test_any_other_is_refused(self, history: list[Message]) -> None:
        with pytest.raises(RequestError, match="send the whole history") as caught:
            self.check(*history, live=["c"])
        assert (caught.value.status, caught.value.param) == (400, "input")
