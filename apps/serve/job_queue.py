"""Who waits for a turn and who has one: a bounded line, first come, first served, shared by all threads.

Owns the places, the order and the end. Must not know: engines, slots, HTTP.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from apps.serve.errors import STOPPING, Failure, overloaded
from apps.serve.jobs import Job

_OLD_SHARE: Final = 0.875
_LONGEST_PAUSE: Final = 60


class JobQueue:
    """Places for `sessions` jobs in work and `waiting` that wait. `clock` gives seconds."""

    def __init__(self, sessions: int, waiting: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions = sessions
        self._places = sessions + waiting
        self._clock = clock
        self._changed = threading.Condition()
        self._admitted: set[Job] = set()
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, float] = {}  # since when
        self._turn_seconds = 0.0
        self._stopping = False

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def queued(self) -> int:
        """Jobs that wait for their turn."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Jobs in work."""
        return len(self._running)

    def refusal(self) -> Failure | None:
        """Why one more job would be refused now, if so."""
        with self._changed:
            return self._refusal()

    def admit(self, job: Job) -> Failure | None:
        """Give `job` a place, to be submitted to or cancelled; or the reason why there is none."""
        with self._changed:
            refusal = self._refusal()
            if refusal is None:
                self._admitted.add(job)
            return refusal

    def submit(self, job: Job) -> None:
        """The job waits from now on; it fails at once if the end has come since it was admitted."""
        with self._changed:
            if not self._stopping:
                self._admitted.add(job)
                self._waiting.append(job)
                self._changed.notify_all()
                return
            self._admitted.discard(job)
        job.fail(STOPPING)

    def cancel(self, job: Job) -> None:
        """Nobody wants this job any more. One that waits is gone; one in work has to be ended by its turn."""
        with self._changed:
            job.cancel()
            if job in self._running:
                return
            self._admitted.discard(job)
            if job in self._waiting:
                self._waiting.remove(job)
                self._changed.notify_all()

    def waiting(self) -> list[Job]:
        """Those who wait, first come first."""
        with self._changed:
            return list(self._waiting)

    def take(self, job: Job) -> bool:
        """The job is in work from now on; False if nobody wants it any more."""
        with self._changed:
            if job not in self._waiting:
                return False
            self._waiting.remove(job)
            self._running[job] = self._clock()
            return True

    def ended(self, job: Job) -> None:
        """The turn of a job in work is over. Only the first call counts."""
        with self._changed:
            since = self._running.pop(job, None)
            if since is None:
                return
            spent = self._clock() - since
            self._admitted.discard(job)
            mean = self._turn_seconds
            self._turn_seconds = _OLD_SHARE * mean + (1 - _OLD_SHARE) * spent if mean else spent
            self._changed.notify_all()

    def wait(self) -> bool:
        """Sleeps while there is nothing to do; False once the end has come and nothing is left to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._running or self._stopping)
            return bool(self._waiting or self._running)

    def close(self, grace: float) -> None:
        """Refuse what comes from now on. Returns when all the rest is done, or after `grace` seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting and not self._running, grace)

    def cut(self) -> None:
        """End all jobs: their clients are told now that the server is stopping, and turns in work that they
        are cancelled."""
        with self._changed:
            unfinished = [*self._waiting, *self._running]
            self._admitted.difference_update(self._waiting)
            self._waiting.clear()
            for job in self._running:
                job.cancel()
        for job in unfinished:
            job.fail(STOPPING)

    def _refusal(self) -> Failure | None:
        if self._stopping:
            return STOPPING
        if len(self._admitted) < self._places:
            return None
        to_work_off = self._turn_seconds * len(self._admitted) / self._sessions
        return overloaded(min(_LONGEST_PAUSE, max(1, math.ceil(to_work_off))))
