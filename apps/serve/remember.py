"""After an answer: what of it the next request of its conversation can go on from.

Owns the judgement of what a client will send back. Spec: chat §3.6, §6. Knows no dialect and no HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass

from apps.serve.turn_request import TurnRequest
from shared.generate import Generation
from shared.kv.live.prompt import Prompt
from shared.kv.live.slot import LiveSlot
from shared.kv.live.tool_memory import ToolMemory
from shared.text.messages import Message
from shared.text.segments import Segment
from shared.text.template import render_answer
from shared.text.turn import Turn


@dataclass(frozen=True, slots=True)
class Answer:
    """A turn that ended well, behind `prompt`. `retried`: the state also holds a first attempt, which no
    client saw."""

    request: TurnRequest
    prompt: Prompt
    turn: Turn
    generation: Generation
    retried: bool

    @property
    def has_visible_text(self) -> bool:
        """Its reasoning will be left out of the next prompt, and nothing else will."""
        return (
            self.request.ask.kind not in ("completion", "responses")
            and self.request.thinking
            and not self.request.tool_context
            and not self.turn.calls
            and self.turn.thinking_closed
            and self.generation.cause == "eos"
        )

    @property
    def all_seen(self) -> bool:
        """The model ended it, its thinking too, and the client was told all that it may send back."""
        ended = self.generation.cause in ("eos", "tool") and self.turn.thinking_closed
        return ended and not self.retried and not self.turn.notice

    def respelt(self, raw: bytes | None) -> list[Segment]:
        """What the next prompt is expected to have in its place if the client sends no reasoning back, or
        none but that of calls. If their `raw` block is known, calls are rendered as they were sampled, with
        their reasoning."""
        turn = self.turn
        shown = raw is not None or self.request.ask.shows_reasoning
        reasoning = turn.reasoning if turn.calls and shown else ""
        message = Message("assistant", turn.content, reasoning, tuple(turn.calls), raw_dsml=raw)
        return render_answer(
            message,
            effort=self.request.ask.effort,
            reasoning_stays=self.request.tool_context or bool(turn.calls),
        )

    def comes_back(self, *, replayed: bool) -> bool:
        """The client will send all of it back, as far as can be told. `replayed`: calls will be rendered as
        they were sampled, with their reasoning."""
        if self.retried or self.turn.notice or self.request.ask.kind == "completion":
            return False
        if self.turn.calls:
            return replayed
        if self.generation.cause not in ("eos", "length"):
            return False  # what was sampled last was never sent
        return not self.request.thinking or (
            self.turn.thinking_closed and self.request.client_sends_reasoning
        )


def remember_answer(answer: Answer, slot: LiveSlot, memory: ToolMemory | None) -> bool:
    """Note what stands in `slot` and which calls were made; without `memory` calls are never replayed.
    Returns whether the calls can be replayed."""
    turn, raw = answer.turn, None
    if turn.calls and memory is not None:
        raw = turn.raw_block
        if raw is not None:
            memory.remember([call.id for call in turn.calls], raw, turn.reasoning)
    if answer.has_visible_text:
        slot.remember_visible(answer.prompt, turn.content)
    elif answer.comes_back(replayed=raw is not None):
        slot.answer_returns()
    ask = answer.request.ask
    if ask.kind == "responses" and answer.all_seen:
        slot.remember_respelt(answer.prompt, answer.respelt(raw))
    if ask.binds_calls and turn.calls and turn.finish_reason != "length":
        slot.remember_calls(answer.prompt, [call.id for call in turn.calls])
    return raw is not None
