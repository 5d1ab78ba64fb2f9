"""A turn that reads nothing: it keeps the bytes it is fed and ends where a test says."""

from __future__ import annotations

from collections.abc import Callable

from shared.text.events import EndCause, FinishReason, TextDelta, TurnEvent
from shared.text.turn import DecodeState


class PlainTurn:
    """Stands in for `shared.text.turn.Turn`. `stop_after` feeds end it as a tool block would; the hooks
    compute the other states from the bytes so far."""

    def __init__(
        self,
        *,
        thinking: bool = False,
        stop_after: int | None = None,
        held: Callable[[bytes], bool] = lambda data: False,
        state: Callable[[bytes], DecodeState] = lambda data: DecodeState.OUTSIDE,
    ) -> None:
        self.data = b""
        self.feeds: list[bytes] = []
        self.finished: list[EndCause] = []
        self._thinking = thinking
        self._stop_after = stop_after
        self._held = held
        self._state = state

    def feed(self, data: bytes) -> list[TurnEvent]:
        assert not self.finished, "fed after the end"
        self.feeds.append(data)
        self.data += data
        return [TextDelta(data.decode("latin-1"))]

    def finish(self, cause: EndCause) -> list[TurnEvent]:
        self.finished.append(cause)
        return [TextDelta("!")]

    @property
    def thinking_closed(self) -> bool:
        return not self._thinking or b"</think>" in self.data

    @property
    def should_stop(self) -> bool:
        return self._stop_after is not None and len(self.feeds) >= self._stop_after

    @property
    def calls(self) -> list[object]:
        return []

    @property
    def held_call(self) -> bool:
        return self._held(self.data)

    @property
    def decode_state(self) -> DecodeState:
        return self._state(self.data)

    @property
    def finish_reason(self) -> FinishReason:
        (cause,) = self.finished
        return "tool_calls" if cause == "tool" else "length" if cause == "length" else "stop"
