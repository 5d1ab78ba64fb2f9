"""Ctrl+C as a wish that work in progress can poll, instead of an exception in the middle of it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

PATIENCE_SECONDS = 2.0


class Interrupt:
    """While entered, the first Ctrl+C only sets the wish, and quick further ones mean the same wish: they
    must not tear off work that is about to stop. One that comes PATIENCE_SECONDS later raises
    KeyboardInterrupt, so that work which never polls can still be left. Calling it tells whether the wish
    stands."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wished_at: float | None = None
        self._previous: Any = None

    def __call__(self) -> bool:
        return self._wished_at is not None

    def __enter__(self) -> Interrupt:
        self._wished_at = None
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = self._clock()
        if self._wished_at is None:
            self._wished_at = now
        elif now - self._wished_at >= PATIENCE_SECONDS:
            raise KeyboardInterrupt
