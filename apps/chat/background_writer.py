"""Writes what was copied out of the engine while the user goes on: one file at a time, on its own thread.

Knows functions to call; nothing of sessions and of files.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class BackgroundWriter:
    """`start` a write, `settle` before the next thing that needs it done. Belongs to one thread."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._running: list[tuple[Future[object], Callable[[Exception], None]]] = []

    def start(self, write: Callable[[], object], failed: Callable[[Exception], None]) -> None:
        """Run `write` on the thread. What it raises goes to `failed`, called by `settle`."""
        self._executor = self._executor or ThreadPoolExecutor(1, "session-writer")
        self._running.append((self._executor.submit(write), failed))

    def settle(self) -> None:
        """Wait until everything is written and report what failed."""
        while self._running:
            future, failed = self._running[0]
            # Of an exception here (Ctrl+C) the write is still to be waited for.
            error = future.exception()
            del self._running[0]
            if isinstance(error, Exception):
                failed(error)

    def close(self) -> None:
        """Wait, and end the thread."""
        self.settle()
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
