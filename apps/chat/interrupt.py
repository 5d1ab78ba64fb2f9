"""Ctrl+C as a wish that work in progress can poll, instead of an exception in the middle of it."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """While entered, the first Ctrl+C only sets the wish; a second one raises KeyboardInterrupt, so that
    work which never polls can still be left. Calling it tells whether the wish stands."""

    def __init__(self) -> None:
        self._wished = False
        self._previous: Any = None

    def __call__(self) -> bool:
        return self._wished

    def __enter__(self) -> Interrupt:
        self._wished = False
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
        if self._wished:
            raise KeyboardInterrupt
        self._wished = True
