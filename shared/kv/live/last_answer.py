"""How a client may name the answer that a live state ends with, other than by the words that were sampled.

Must not know: sessions, stores, dialects.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.kv.live.control_tokens import ControlTokens
from shared.kv.live.prompt import Prompt
from shared.kv.live.standing import Standing
from shared.text import marks
from shared.text.segments import Segment, SegmentKind

_ANSWER_MARKS = (marks.THINK.encode(), marks.THINK_END.encode())


@dataclass(frozen=True, slots=True)
class LastAnswer:
    """Valid as long as the live state ends at `position`. `head` bytes of its text stand before the answer.

    `calls` are the ids of all calls in it. `visible` is the whole state as a client writes it that leaves
    out, or respells, a part of the answer; None if no client does.
    """

    position: int
    head: int
    calls: frozenset[str] = frozenset()
    visible: Standing | None = None


def answer_head(prompt: Prompt) -> bytes:
    """The text of `prompt` up to where an answer in a history differs from the answer that is asked for:
    before the mark that opens, or skips, its thinking."""
    rendered = prompt.rendered
    mark = next((mark for mark in _ANSWER_MARKS if rendered.endswith(mark)), b"")
    return rendered[: len(rendered) - len(mark)]


def agrees_before(prompt: Prompt, offset: int, head: int, controls: ControlTokens) -> bool:
    """Whether no message begins between the `head` of a live answer, up to which `prompt` agrees with its
    state, and byte `offset`, where `prompt` has the results of its calls: all in between is the answer."""
    heads = (controls.tokenizer.specials.user, controls.tokenizer.specials.assistant)
    marks_of = controls.of_prompt(prompt)
    return head <= offset and marks_of.before(offset).only(*heads) == marks_of.before(head).only(*heads)


def behind_state(live: list[int], prompt: Prompt, controls: ControlTokens) -> Prompt:
    """The prompt that the results of `prompt` make together with the live answer that they belong to."""
    assert prompt.tail is not None
    tokens = live + controls.tokenizer.encode_segments(prompt.tail.segments)
    return Prompt([Segment(controls.decode(live), SegmentKind.EXACT), *prompt.tail.segments], tokens)
