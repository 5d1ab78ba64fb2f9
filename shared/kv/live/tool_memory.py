"""The exact bytes of tool-call blocks that were sampled here or read from cache files, by call id.

A client sends calls back as JSON; rendering them anew would change bytes and lose the cached prefix.
Shared by the dialects and by threads. Spec: chat §3.6, kv §8. Must not know: sessions, files.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from shared.kv.live.tool_blocks import reasoning_before, tool_blocks
from shared.text.messages import Message

_DEFAULT_BYTES = 512 * 1024 * 1024


class Origin(Enum):
    """Where a turn is known from: sampled in this process, or read from a cache file."""

    RAM = "ram"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """A turn with calls as the model wrote it: the raw block and the reasoning before it.

    A cache file does not say which of several turns with the same block made a call: `reasonings` then holds
    one for each place where the block stands in the file's text, in order.
    """

    block: bytes
    reasonings: tuple[str, ...]
    origin: Origin = Origin.RAM

    @property
    def known_reasonings(self) -> int:
        """How many of the turns have a reasoning."""
        return sum(map(bool, self.reasonings))

    def reasoning(self, earlier: int) -> str:
        """The reasoning of the turn that has `earlier` turns with the same block before it."""
        return self.reasonings[min(earlier, len(self.reasonings) - 1)]


@dataclass(slots=True)
class ReplayCounts:
    """How the assistant messages with calls of one history were rendered: blocks as they were sampled, from
    memory or from a disk cache, or written anew for want of `missing_ids` or because their ids belong to
    different turns. `bare` of the latter have no reasoning."""

    mem: int = 0
    disk: int = 0
    canonical: int = 0
    missing_ids: int = 0
    bare: int = 0


class ToolMemory:
    """A least-recently-used map, id -> the turn that made the call. All ids of a turn share one entry."""

    def __init__(self, max_ids: int, max_bytes: int = _DEFAULT_BYTES) -> None:
        self._max_ids = max_ids
        self._max_bytes = max_bytes
        self._turns: OrderedDict[str, SampledTurn] = OrderedDict()
        self._ids_of: dict[int, int] = {}
        self._ids_with: dict[bytes, dict[str, None]] = {}  # the ids of each block, oldest first
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

    def missing(self, call_ids: Iterable[str]) -> set[str]:
        """Those of `call_ids` that a cache file would have to supply."""
        with self._lock:
            return {call_id for call_id in call_ids if call_id not in self._turns}

    def remember(self, call_ids: Sequence[str], block: bytes, reasoning: str) -> None:
        """Keep a canonical, unrepaired block that was sampled here. The oldest entries leave when a limit is
        passed."""
        with self._lock:
            self._keep(call_ids, SampledTurn(block, (reasoning,)))

    def adopt(self, tool_map: Mapping[str, bytes], text: bytes) -> None:
        """Take over the map, id -> block, of a cache file whose key is `text`. What was sampled here stays.

        The map is covered by no checksum: a block that `text` does not hold is left out. The reasoning comes
        from `text`, so that a client that sends none back still gets the prompt that was computed.
        """
        reasonings: dict[bytes, list[str]] = {}
        mapped = set(tool_map.values())
        for block in tool_blocks(text):
            if block.raw in mapped:
                reasonings.setdefault(block.raw, []).append(reasoning_before(text, block))
        ids: dict[bytes, list[str]] = {}
        for call_id, raw in tool_map.items():
            if raw in reasonings:
                ids.setdefault(raw, []).append(call_id)
        with self._lock:
            for raw, call_ids in ids.items():
                turn = SampledTurn(raw, tuple(reasonings[raw]), Origin.DISK)
                self._keep([call_id for call_id in call_ids if self._is_better(turn, call_id)], turn)

    def turns_in(self, text: bytes) -> dict[str, bytes]:
        """The map, id -> block, that a cache file with the key `text` carries: every id known for a block of
        it, in the order of the text. Spec: kv §8.3."""
        blocks = [block.raw for block in tool_blocks(text)]
        with self._lock:
            return {call_id: raw for raw in blocks for call_id in self._ids_with.get(raw, ())}

    def turn_of(self, call_ids: Sequence[str]) -> SampledTurn | None:
        """The turn that made exactly known calls: None unless all ids are known and share one turn."""
        with self._lock:
            found = [self._turns.get(call_id) for call_id in call_ids]
            if not found or found[0] is None or not all(_same_turn(found[0], turn) for turn in found):
                return None
            for call_id in call_ids:
                self._turns.move_to_end(call_id)
            return found[0]

    def replay(self, messages: Sequence[Message]) -> tuple[list[Message], ReplayCounts]:
        """The history with sampled blocks put back, and reasoning that the client did not send back."""
        counts, seen = ReplayCounts(), Counter[bytes]()
        return [self._replayed(message, counts, seen) for message in messages], counts

    def _replayed(self, message: Message, counts: ReplayCounts, seen: Counter[bytes]) -> Message:
        if not message.tool_calls:
            return message
        ids = [call.id for call in message.tool_calls]
        turn = self.turn_of(ids)
        if turn is None:
            counts.canonical += 1
            counts.missing_ids += len(self.missing(ids))
            counts.bare += not message.reasoning
            return message
        if turn.origin is Origin.RAM:
            counts.mem += 1
        else:
            counts.disk += 1
        reasoning = message.reasoning or turn.reasoning(seen[turn.block])
        seen[turn.block] += 1
        return replace(message, raw_dsml=turn.block, reasoning=reasoning)

    def _is_better(self, read: SampledTurn, call_id: str) -> bool:
        """Whether a turn read from a file says more of a call than what is known of it."""
        known = self._turns.get(call_id)
        if known is None:
            return True
        return known.origin is Origin.DISK and read.known_reasonings > known.known_reasonings

    def _keep(self, call_ids: Collection[str], turn: SampledTurn) -> None:
        for call_id in call_ids:
            self._forget(call_id)
            self._turns[call_id] = turn
            self._ids_of[id(turn)] = self._ids_of.get(id(turn), 0) + 1
            self._ids_with.setdefault(turn.block, {})[call_id] = None
        if call_ids:
            self._bytes += _size(turn)
        while self._turns and (len(self._turns) > self._max_ids or self._bytes > self._max_bytes):
            self._forget(next(iter(self._turns)))

    def _forget(self, call_id: str) -> None:
        turn = self._turns.pop(call_id, None)
        if turn is None:
            return
        self._ids_of[id(turn)] -= 1
        if not self._ids_of[id(turn)]:
            del self._ids_of[id(turn)]
            self._bytes -= _size(turn)
        ids = self._ids_with[turn.block]
        del ids[call_id]
        if not ids:
            del self._ids_with[turn.block]


def _same_turn(first: SampledTurn, other: SampledTurn | None) -> bool:
    """Of what a file holds only the block can tell; what was sampled here is known exactly."""
    if other is None or other is first:
        return other is first
    return other.block == first.block and Origin.DISK in (first.origin, other.origin)


def _size(turn: SampledTurn) -> int:
    return len(turn.block) + sum(map(len, turn.reasonings))
