"""Renders a normalised history as the prompt the model was trained on, in segments of known origin.

Owns the order and the marks of the chat format. Knows nothing of token ids, of wire formats and of caches.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from shared.text import marks
from shared.text.dsml_write import write_block
from shared.text.effort import Effort, effort_text
from shared.text.messages import Message, ToolSet
from shared.text.prompt_texts import TOOLS_AFTER_SCHEMAS, TOOLS_BEFORE_SCHEMAS
from shared.text.segments import Segment, SegmentKind, join
from shared.text.utf8 import to_bytes

_SYSTEM_ROLES: Final = ("system", "developer")
_TOOL_ROLES: Final = ("tool", "function")
_INPUT_ROLES: Final = ("user", *_TOOL_ROLES)
_RESULT_OPEN: Final = "<tool_result>"
_RESULT_CLOSE: Final = "</tool_result>"
_RESULT_CLOSE_ESCAPED: Final = "&lt;/tool_result>"


def render_chat(
    messages: Sequence[Message],
    tools: ToolSet | None,
    *,
    effort: Effort,
    profile: str,
    control_tokens_in_content: bool = False,
) -> list[Segment]:
    """The whole prompt, ending in the mark behind which the model answers.

    `tools` are the ones the model may call (None or empty: none); `profile` selects the effort texts.
    System and developer texts are gathered behind the tool instructions, wherever they stand.
    `control_tokens_in_content` makes control strings in what the client sent count as control tokens.
    """
    active = tools if tools is not None and len(tools) > 0 else None
    rendering = _Rendering(thinking=effort != "none")
    rendering.control(marks.BOS)
    rendering.control(effort_text(profile, effort))
    rendering.system_region(messages, active)
    rendering.body(messages, reasoning_stays=active is not None or _has_tool_traffic(messages))
    rendering.control(marks.ASSISTANT + rendering.answer_mark)
    return _finished(rendering.segments, control_tokens_in_content)


def render_tail(
    messages: Sequence[Message], *, effort: Effort, control_tokens_in_content: bool = False
) -> list[Segment]:
    """What follows a live answer that the session holds itself: its end mark, the new messages, the next
    answer's marks. System messages in `messages` are not rendered: their region is already behind."""
    rendering = _Rendering(thinking=effort != "none")
    rendering.control(marks.EOS)
    rendering.body(messages, reasoning_stays=True)
    rendering.control(marks.ASSISTANT + rendering.answer_mark)
    return _finished(rendering.segments, control_tokens_in_content)


def render_answer(
    message: Message, *, effort: Effort, reasoning_stays: bool, control_tokens_in_content: bool = False
) -> list[Segment]:
    """An answer as a history has it behind the mark of the assistant, without its end mark.
    `reasoning_stays`: the history is one that keeps the reasoning of all its answers."""
    rendering = _Rendering(thinking=effort != "none")
    rendering.answer_head(message, mark="", reasoning=reasoning_stays)
    rendering.answer(message)
    return _finished(rendering.segments, control_tokens_in_content)


class _Rendering:
    """The segments so far."""

    def __init__(self, *, thinking: bool) -> None:
        self.segments: list[Segment] = []
        self.thinking = thinking
        self.answer_mark = marks.THINK if thinking else marks.THINK_END

    def control(self, text: str) -> None:
        self._add(to_bytes(text), SegmentKind.CONTROL)

    def text(self, text: str) -> None:
        self._add(to_bytes(text), SegmentKind.TEXT)

    def _add(self, data: bytes, kind: SegmentKind) -> None:
        if data:
            self.segments.append(Segment(data, kind))

    def system_region(self, messages: Sequence[Message], tools: ToolSet | None) -> None:
        started = tools is not None
        if tools is not None:
            self.control(TOOLS_BEFORE_SCHEMAS)
            self.text("\n".join(json.dumps(schema, ensure_ascii=False) for schema in tools))
            self.control(TOOLS_AFTER_SCHEMAS)
        for message in messages:
            if message.role in _SYSTEM_ROLES:
                if started:
                    self.control("\n\n")
                self.text(message.content)
                started = started or bool(message.content)

    def body(self, messages: Sequence[Message], *, reasoning_stays: bool) -> None:
        """Every message that is no system text, in order."""
        last_input = max((i for i, m in enumerate(messages) if m.role in _INPUT_ROLES), default=-1)
        answer_due = False
        previous_role = ""
        for index, message in enumerate(messages):
            if message.role == "user":
                if not message.continues:
                    self.control(marks.USER)
                self.text(message.content)
                answer_due = True
            elif message.role in _TOOL_ROLES:
                if previous_role not in _TOOL_ROLES and not message.continues:
                    self.control(marks.USER)
                self._tool_result(message)
                answer_due = True
            elif message.role == "assistant":
                if answer_due:
                    reasoning = reasoning_stays or index > last_input
                    self.answer_head(message, mark=marks.ASSISTANT, reasoning=reasoning)
                self.answer(message)
                self.control(marks.EOS)
                answer_due = False
            elif message.role == "latest_reminder" and _precedes_user(messages, index):
                self.control(marks.REMINDER)
                self.text(message.content)
            else:
                continue
            previous_role = message.role

    def _tool_result(self, message: Message) -> None:
        self.control(_RESULT_OPEN)
        self.text(message.content.replace(_RESULT_CLOSE, _RESULT_CLOSE_ESCAPED))
        self.control(_RESULT_CLOSE)

    def answer_head(self, message: Message, *, mark: str, reasoning: bool) -> None:
        if self.thinking and reasoning:
            self.control(mark + marks.THINK)
            self.text(message.reasoning)
            self.control(marks.THINK_END)
        else:
            self.control(mark + marks.THINK_END)

    def answer(self, message: Message) -> None:
        self.text(message.content)
        if message.raw_dsml is not None:
            self._add(message.raw_dsml, SegmentKind.EXACT)
        elif message.tool_calls:
            self.segments += write_block(message.tool_calls)


def _has_tool_traffic(messages: Sequence[Message]) -> bool:
    return any(m.role in _TOOL_ROLES or (m.role == "assistant" and m.tool_calls) for m in messages)


def _precedes_user(messages: Sequence[Message], index: int) -> bool:
    """Whether only reminders and system texts stand between here and the next user message."""
    transparent = ("latest_reminder", *_SYSTEM_ROLES)
    return next((m.role == "user" for m in messages[index + 1 :] if m.role not in transparent), False)


def _finished(segments: list[Segment], control_tokens_in_content: bool) -> list[Segment]:
    if control_tokens_in_content:
        # As one piece, a control string counts wherever it stands, also across what were borders.
        return [Segment(join(segments), SegmentKind.CONTROL)]
    return segments
