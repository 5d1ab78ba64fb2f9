"""The writing thread: order, bounds, and what is left out."""

from __future__ import annotations

import threading

import pytest

from shared.kv.store.writer import Job, Writer


class Bench:
    """A writer of at most 100 waiting bytes, whose first job holds until `gate` opens."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.dropped: list[str] = []
        self.failures: list[str] = []
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.writer = Writer(
            lambda job, error: self.failures.append(f"{job.name}: {error}"), most_waiting=100
        )

    def job(self, text: bytes, size: int = 10, *, droppable: bool = False, held: bool = False) -> Job:
        name = text.decode()

        def run() -> None:
            if held:
                self.begun.set()
                assert self.gate.wait(10)
            if "fail" in name:
                raise OSError("no space")
            self.done.append(name)

        return Job(name, text, size, droppable, run, lambda: self.dropped.append(name))

    def put(self, text: bytes, size: int = 10, *, droppable: bool = False, held: bool = False) -> Job:
        assert self.writer.reserve(size, wait=False)
        job = self.job(text, size, droppable=droppable, held=held)
        self.writer.put(job)
        if held:
            assert self.begun.wait(10)
        return job


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_in_order_and_all_before_the_end(bench: Bench) -> None:
    bench.put(b"first", held=True)
    for text in (b"a", b"b", b"c"):
        bench.put(text)
    assert [job.name for job in bench.writer.pending()] == ["first", "a", "b", "c"]
    bench.gate.set()
    bench.writer.close()
    assert bench.done == ["first", "a", "b", "c"]
    assert bench.writer.pending() == []


def test_no_thread_before_there_is_something_to_write() -> None:
    before = threading.active_count()
    bench = Bench()
    bench.writer.flush()
    assert threading.active_count() == before
    bench.writer.close()


def test_a_failure_is_told_and_the_next_job_runs(bench: Bench) -> None:
    bench.put(b"fail")
    bench.put(b"next")
    bench.writer.flush()
    assert bench.failures == ["fail: no space"]
    assert bench.done == ["next"]
    assert bench.writer.reserve(100, wait=False), "the failed job's bytes are free again"
    bench.writer.close()


def test_longer_states_replace_waiting_ones(bench: Bench) -> None:
    bench.put(b"first", held=True)
    bench.put(b"ab", droppable=True)
    bench.put(b"ax", droppable=True)
    bench.put(b"a")
    bench.put(b"abc", droppable=True)
    bench.put(b"abcd")
    assert bench.dropped == ["ab", "abc"]
    bench.gate.set()
    bench.writer.close()
    assert bench.done == ["first", "ax", "a", "abcd"]


def test_the_job_at_work_is_not_dropped(bench: Bench) -> None:
    bench.put(b"a", droppable=True, held=True)
    bench.put(b"ab")
    assert bench.dropped == []
    bench.gate.set()
    bench.writer.close()
    assert bench.done == ["a", "ab"]


def test_the_queue_is_bounded_in_bytes(bench: Bench) -> None:
    bench.put(b"first", 60, held=True)
    assert not bench.writer.reserve(50, wait=False)
    assert bench.writer.reserve(40, wait=False)
    bench.writer.release(40)
    bench.put(b"second", 40)
    assert not bench.writer.reserve(1, wait=False)
    bench.gate.set()
    assert bench.writer.reserve(100, wait=True), "waits for the writer"
    assert bench.done[0] == "first"
    bench.writer.release(100)
    bench.writer.close()


def test_a_job_larger_than_the_queue_gets_its_turn(bench: Bench) -> None:
    bench.put(b"giant", 1000)
    bench.writer.close()
    assert bench.done == ["giant"]


def test_a_dropped_job_frees_its_bytes(bench: Bench) -> None:
    bench.put(b"first", 10, held=True)
    bench.put(b"a", 50, droppable=True)
    bench.put(b"ab", 40)
    assert bench.writer.reserve(50, wait=False)
    bench.gate.set()
    bench.writer.close()


def test_waiting_for_one_job(bench: Bench) -> None:
    first = bench.put(b"first", held=True)
    second = bench.put(b"second", droppable=True)
    third = bench.put(b"second and more")
    bench.writer.wait_for(second)  # dropped: nothing to wait for
    bench.gate.set()
    bench.writer.wait_for(first)
    bench.writer.wait_for(third)
    assert bench.done == ["first", "second and more"]
    bench.writer.close()
