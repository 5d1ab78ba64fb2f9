"""The thread that writes, and the bounded queue before it.

Owns the order of writes and how many bytes may wait. Must not know: files, policies, sessions.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MOST_WAITING_BYTES: Final = 2 << 30


@dataclass(eq=False, slots=True)
class Job:
    """One write. `run` does it, on the writer's thread; `dropped` is told if a longer text made it needless.

    `size` is what it holds in memory, in bytes; `text` the key that it is about.
    """

    name: str
    text: bytes
    size: int
    droppable: bool
    run: Callable[[], None]
    dropped: Callable[[], None]


class Writer:
    """Runs jobs one after another. The thread starts with the first of them. All methods: from any thread.

    `failed` gets what a job raised; the next job runs all the same.
    """

    def __init__(
        self, failed: Callable[[Job, Exception], None], *, most_waiting: int = MOST_WAITING_BYTES
    ) -> None:
        self._failed = failed
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._queue: deque[Job] = deque()
        self._working: Job | None = None
        self._reserved = 0  # bytes of all jobs, those that are still being put together included
        self._thread: threading.Thread | None = None
        self._closing = False

    def reserve(self, size: int, *, wait: bool) -> bool:
        """Room for a job of `size` bytes, before its bytes are put together; `wait` until there is some.

        A job larger than the whole queue gets its turn alone.
        """
        with self._changed:
            while self._reserved and self._reserved + size > self._most_waiting:
                if not wait:
                    return False
                self._changed.wait()
            self._reserved += size
            return True

    def release(self, size: int) -> None:
        """Give a reservation back, unused."""
        with self._changed:
            self._reserved -= size
            self._changed.notify_all()

    def put(self, job: Job) -> None:
        """Queue a job of a size reserved before. Waiting droppable jobs of a beginning of its text go."""
        with self._changed:
            assert not self._closing, "the writer is closed"
            needless = [
                waiting for waiting in self._queue if waiting.droppable and job.text.startswith(waiting.text)
            ]
            for waiting in needless:
                self._queue.remove(waiting)
                self._reserved -= waiting.size
            self._queue.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="kv-writer", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        for waiting in needless:
            waiting.dropped()

    def pending(self) -> list[Job]:
        """Jobs that are not done, the one in work included, in order."""
        with self._changed:
            return [*([self._working] if self._working else ()), *self._queue]

    def wait_for(self, job: Job) -> None:
        """Until `job` is done or dropped."""
        with self._changed:
            self._changed.wait_for(lambda: job is not self._working and job not in self._queue)

    def flush(self) -> None:
        """Until nothing is left to do."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue and self._working is None)

    def close(self) -> None:
        """Finish the jobs, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
                job = self._working = self._queue.popleft()
            try:
                job.run()
            except Exception as error:  # whatever it was: the thread must live on
                self._failed(job, error)
            with self._changed:
                self._working = None
                self._reserved -= job.size
                self._changed.notify_all()
            del job  # and with it the bytes, before the next wait
