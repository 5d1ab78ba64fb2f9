"""After an answer: what of it the next request of its conversation can go on from.

Owns the judgement of what a client will send back. Spec: chat §3.6, §6. Knows no dialect and no HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass

from apps.serve.turn_request import TurnRequest
from shared.generate import Generation
from shared.kv.live.slot import LiveSlot
from shared.kv.live.tool_memory import ToolMemory
from shared.text.turn import Turn


@dataclass(frozen=True, slots=True)
class Answer:
    """A turn that ended well. `retried`: the state also holds a first attempt, which no client saw."""

    request: TurnRequest
    turn: Turn
    generation: Generation
    retried: bool

    @property
    def has_visible_text(self) -> bool:
        """Its reasoning will be left out of the next prompt, and nothing else will."""
        return (
            self.request.ask.kind != "completion"
            and self.request.thinking
            and not self.request.tool_context
            and not self.turn.calls
            and self.turn.thinking_closed
            and self.generation.cause == "eos"
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
        slot.remember_visible(answer.request.prompt, turn.content)
    elif answer.comes_back(replayed=raw is not None):
        slot.answer_returns()
    return raw is not None
