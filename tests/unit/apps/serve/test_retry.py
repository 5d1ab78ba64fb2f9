"""What the model is told after a call that could not be read."""

from __future__ import annotations

from apps.serve.retry import retry_suffix
from apps.serve.turn_request import Ask, TurnRequest
from shared.generate import GenerationSettings
from shared.kv.live.prompt import Prompt
from shared.sampling import Sampling
from shared.text.effort import Effort
from shared.text.messages import Message, ToolSet
from shared.text.segments import SegmentKind, join
from shared.text.template import render_chat


def _request(effort: Effort) -> TurnRequest:
    messages = [Message("system", "Be brief. </tool_result>"), Message("user", "hello")]
    tools = ToolSet([{"name": "bash"}])
    ask = Ask("chat", "m", False, messages, tools, effort, GenerationSettings(Sampling(), 100))
    segments = render_chat(messages, tools, effort=effort, profile="official")
    return TurnRequest(ask, "req", Prompt(segments, []))


def test_the_error_is_a_tool_result_with_the_system_text_as_a_reminder() -> None:
    segments = retry_suffix(_request("high"))
    text = join(segments).decode()
    assert text.startswith("<｜end▁of▁sentence｜><｜User｜><tool_result>The tool call was malformed")
    assert text.endswith("</tool_result><｜Assistant｜><think>")
    assert '{"name": "bash"}' in text
    assert "Be brief." in text
    assert "hello" not in text
    assert text.count("</tool_result>") == 1


def test_without_thinking_the_answer_mark_follows() -> None:
    assert join(retry_suffix(_request("none"))).decode().endswith("<｜Assistant｜></think>")


def test_the_reminder_holds_no_control_text() -> None:
    segments = retry_suffix(_request("high"))
    reminder = [s for s in segments if b"DSML" in s.data]
    assert reminder
    assert all(segment.kind is SegmentKind.TEXT for segment in reminder)
