"""The exact bytes of tool-call blocks that were sampled here, by call id.

A client sends calls back as JSON; rendering them anew would change bytes and lose the cached prefix.
Shared by the dialects and by threads. Spec: chat §3.6. Knows no session.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shared.text.messages import Message

_DEFAULT_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """A turn with calls as the model wrote it: the raw block and the reasoning before it."""

    block: bytes
    reasoning: str


@dataclass(slots=True)
class ReplayCounts:
    """How the assistant messages with calls of one history were rendered: blocks as they were sampled, from
    memory or from a disk cache, or written anew for want of `missing_ids` or because their ids belong to
    different turns."""

    mem: int = 0
    disk: int = 0
    canonical: int = 0
    missing_ids: int = 0


class ToolMemory:
    """A least-recently-used map, id -> the turn that made the call. All ids of a turn share one entry."""

    def __init__(self, max_ids: int, max_bytes: int = _DEFAULT_BYTES) -> None:
        self._max_ids = max_ids
        self._max_bytes = max_bytes
        self._turns: OrderedDict[str, SampledTurn] = OrderedDict()
        self._ids_of: dict[int, int] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def __contains__(self, call_id: str) -> bool:
        with self._lock:
            return call_id in self._turns

    def __len__(self) -> int:
        with self._lock:
            return len(self._turns)

    def unique(self, new_id: Callable[[], str]) -> Callable[[], str]:
        """`new_id`, drawn again until it is unknown here and new in this turn."""
        drawn: set[str] = set()

        def draw() -> str:
            while (call_id := new_id()) in drawn or call_id in self:
                pass
            drawn.add(call_id)
            return call_id

        return draw

    def remember(self, call_ids: Sequence[str], block: bytes, reasoning: str) -> None:
        """Keep a canonical, unrepaired block. The oldest entries leave when a limit is passed."""
        turn = SampledTurn(block, reasoning)
        with self._lock:
            for call_id in call_ids:
                self._forget(call_id)
                self._turns[call_id] = turn
                self._ids_of[id(turn)] = self._ids_of.get(id(turn), 0) + 1
            if call_ids:
                self._bytes += _size(turn)
            while self._turns and (len(self._turns) > self._max_ids or self._bytes > self._max_bytes):
                self._forget(next(iter(self._turns)))

    def turn_of(self, call_ids: Sequence[str]) -> SampledTurn | None:
        """The turn that made exactly known calls: None unless all ids are known and share one turn."""
        with self._lock:
            found = [self._turns.get(call_id) for call_id in call_ids]
            if not found or found[0] is None or any(turn is not found[0] for turn in found):
                return None
            for call_id in call_ids:
                self._turns.move_to_end(call_id)
            return found[0]

    def replay(self, messages: Sequence[Message]) -> tuple[list[Message], ReplayCounts]:
        """The history with sampled blocks put back, and reasoning that the client did not send back."""
        counts = ReplayCounts()
        return [self._replayed(message, counts) for message in messages], counts

    def _replayed(self, message: Message, counts: ReplayCounts) -> Message:
        if not message.tool_calls:
            return message
        ids = [call.id for call in message.tool_calls]
        turn = self.turn_of(ids)
        if turn is None:
            counts.canonical += 1
            counts.missing_ids += sum(call_id not in self for call_id in ids)
            return message
        counts.mem += 1
        return replace(message, raw_dsml=turn.block, reasoning=message.reasoning or turn.reasoning)

    def _forget(self, call_id: str) -> None:
        turn = self._turns.pop(call_id, None)
        if turn is None:
            return
        self._ids_of[id(turn)] -= 1
        if not self._ids_of[id(turn)]:
            del self._ids_of[id(turn)]
            self._bytes -= _size(turn)


def _size(turn: SampledTurn) -> int:
    return len(turn.block) + len(turn.reasoning)
