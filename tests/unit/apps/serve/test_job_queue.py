"""The line of those who wait: places, order, what a refusal says, the end."""

from __future__ import annotations

from typing import Any, cast

import pytest

from apps.serve.errors import STOPPING, Failure
from apps.serve.job_queue import JobQueue
from apps.serve.jobs import Job
from tests.support.clock import FakeClock


class _Job:
    def __init__(self) -> None:
        self.cancelled = False
        self.failure: Failure | None = None

    def cancel(self) -> None:
        self.cancelled = True

    def is_cancelled(self) -> bool:
        return self.cancelled

    def fail(self, failure: Failure) -> None:
        self.failure = failure


def _job() -> Any:
    return cast("Job", _Job())


def _refusal(queue: JobQueue) -> Failure:
    refusal = queue.admit(_job())
    assert refusal is not None
    return refusal


def test_places_are_those_in_work_and_those_who_wait() -> None:
    queue = JobQueue(2, 3)
    jobs = [_job() for _ in range(5)]
    assert all(queue.admit(job) is None for job in jobs)
    assert _refusal(queue).status == 429
    assert queue.refusal() is not None
    for job in jobs:
        queue.submit(job)
    assert queue.waiting() == jobs
    assert queue.take(jobs[0])
    assert (queue.queued, queue.running) == (4, 1)
    assert _refusal(queue).status == 429
    queue.ended(jobs[0])
    assert queue.admit(_job()) is None
    assert _refusal(queue).status == 429


@pytest.mark.parametrize("submitted", [True, False])
def test_who_leaves_gives_up_the_place(submitted: bool) -> None:
    queue, job = JobQueue(1, 0), _job()
    queue.admit(job)
    if submitted:
        queue.submit(job)
    queue.cancel(job)
    assert not queue.take(job)
    assert queue.waiting() == []
    assert queue.admit(_job()) is None


def test_who_is_in_work_keeps_it_until_its_turn_is_over() -> None:
    queue, job = JobQueue(1, 0), _job()
    queue.submit(job)
    queue.take(job)
    queue.cancel(job)
    assert job.cancelled
    assert _refusal(queue).status == 429
    queue.ended(job)
    queue.ended(job)
    assert queue.admit(_job()) is None


def test_a_refusal_says_when_the_line_should_be_worked_off() -> None:
    clock = FakeClock()
    queue = JobQueue(2, 2, clock=clock)

    def turn(seconds: float) -> None:
        job = _job()
        queue.submit(job)
        queue.take(job)
        clock.sleep(seconds)
        queue.ended(job)

    def retry_after() -> int | None:
        jobs = [_job() for _ in range(4)]
        assert all(queue.admit(job) is None for job in jobs)
        refusal = _refusal(queue)
        for job in jobs:
            queue.cancel(job)
        assert str(refusal.retry_after) in refusal.message
        return refusal.retry_after

    assert retry_after() == 1
    turn(8.0)
    assert retry_after() == 16
    turn(0.0)
    assert retry_after() == 14
    turn(10_000.0)
    assert retry_after() == 60


def test_at_the_end_nobody_gets_in_and_all_are_told() -> None:
    queue, waiting, running, late, slow = JobQueue(1, 9), _job(), _job(), _job(), _job()
    queue.admit(slow)
    for job in (running, waiting):
        queue.submit(job)
    queue.take(running)
    queue.close(0)
    assert queue.stopping
    assert _refusal(queue) == STOPPING
    for job in (late, slow):
        queue.submit(job)
        assert job.failure == STOPPING
    assert waiting.failure is None
    queue.cut()
    assert waiting.failure == running.failure == STOPPING
    assert running.cancelled
    assert queue.wait()
    queue.ended(running)
    assert not queue.wait()
