"""The race detector against a plain model of which accesses are ordered, on programs made at random."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.ksim import KernelError, clang_missing, metal_kernel

pytestmark = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))

THREADS = (0, 1, 2, 32, 33)  # those that do anything, in two simdgroups
CELLS = 2
ACCESS, THREADGROUP_BARRIER, SIMDGROUP_BARRIER = 0, 1, 2
READ, WRITE, ATOMIC, ATOMIC_READ = 1, 2, 3, 4

# Each step all threads pass a barrier, or each does what the program says of it.
INTERPRETER = """
    threadgroup atomic_int cells[2];
    threadgroup int* plain = (threadgroup int*)cells;
    const uint t = thread_index_in_threadgroup;
    if (t == 0) plain[0] = plain[1] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    int sum = 0;
    for (int step = 0; step < kinds_shape[0]; step++) {
        if (kinds[step] == 1) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
        } else if (kinds[step] == 2) {
            simdgroup_barrier(mem_flags::mem_threadgroup);
        } else {
            const int what = program[step * 64 + t] % 8, cell = program[step * 64 + t] / 8;
            if (what == 1) sum += plain[cell];
            if (what == 2) plain[cell] = step;
            if (what == 3) sum += atomic_fetch_add_explicit(&cells[cell], 1, memory_order_relaxed);
            if (what == 4) sum += atomic_load_explicit(&cells[cell], memory_order_relaxed);
        }
    }
    y[t] = sum;
"""


@dataclass(frozen=True)
class Step:
    """A barrier, or an access (what, cell) for some of THREADS."""

    kind: int
    accesses: tuple[tuple[int, int, int], ...] = ()  # thread, what, cell


def conflict(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Of two accesses by different threads that nothing orders."""
    writes = WRITE in (one[1], other[1]) or ATOMIC in (one[1], other[1])
    both_atomic = one[1] >= ATOMIC and other[1] >= ATOMIC
    return one[0] != other[0] and one[2] == other[2] and writes and not both_atomic


def has_race(steps: list[Step]) -> bool:
    """Whether two accesses conflict and neither kind of barrier is between them."""
    seen: list[tuple[int, int, tuple[int, int, int]]] = []
    epoch = simdgroup_epoch = 0
    for step in steps:
        epoch += step.kind == THREADGROUP_BARRIER
        simdgroup_epoch += step.kind == SIMDGROUP_BARRIER
        for access in step.accesses:
            for earlier_epoch, earlier_simdgroup, earlier in seen:
                same_simdgroup = access[0] // 32 == earlier[0] // 32
                ordered = earlier_epoch != epoch or (same_simdgroup and earlier_simdgroup != simdgroup_epoch)
                if conflict(access, earlier) and not ordered:
                    return True
            seen.append((epoch, simdgroup_epoch, access))
    return False


@cache
def interpreter(seed: int) -> Any:
    return metal_kernel("interpreter", ["kinds", "program"], ["y"], INTERPRETER, check="full", seed=seed)


def found_race(steps: list[Step], seed: int) -> bool:
    kinds = np.zeros(16, np.int32)
    program = np.zeros((16, 64), np.int32)
    for index, step in enumerate(steps):
        kinds[index] = step.kind
        for thread, what, cell in step.accesses:
            program[index, thread] = what + 8 * cell
    try:
        interpreter(seed)(
            inputs=[kinds, program],
            grid=(64, 1, 1),
            threadgroup=(64, 1, 1),
            output_shapes=[(64,)],
            output_dtypes=[np.int32],
        )
    except KernelError as error:
        message = str(error)
    else:
        return False
    assert "data race on cells" in message
    return True


access = st.tuples(
    st.sampled_from(THREADS),
    st.sampled_from((READ, READ, WRITE, ATOMIC, ATOMIC_READ)),
    st.integers(0, CELLS - 1),
)
accesses = st.lists(access, min_size=1, max_size=3, unique_by=lambda one: one[0]).map(
    lambda listed: Step(ACCESS, tuple(listed))
)
step = st.one_of(accesses, accesses, st.sampled_from((Step(THREADGROUP_BARRIER), Step(SIMDGROUP_BARRIER))))


@settings(max_examples=300, deadline=None)
@given(st.lists(step, max_size=12), st.sampled_from((0, 1, 2)))
# One lane reads and then writes what all lanes read before the simdgroup barrier.
@example(
    [
        Step(ACCESS, ((0, READ, 0), (1, READ, 0))),
        Step(SIMDGROUP_BARRIER),
        Step(ACCESS, ((0, READ, 0),)),
        Step(ACCESS, ((0, WRITE, 0),)),
    ],
    0,
)
# A plain write hidden by the same thread's atomic one.
@example(
    [Step(ACCESS, ((0, WRITE, 0),)), Step(ACCESS, ((0, ATOMIC, 0),)), Step(ACCESS, ((32, ATOMIC, 0),))], 0
)
# Atomics of one simdgroup, read plainly after its barrier.
@example(
    [Step(ACCESS, ((0, ATOMIC, 0), (1, ATOMIC, 0))), Step(SIMDGROUP_BARRIER), Step(ACCESS, ((2, READ, 0),))],
    0,
)
# A simdgroup's barrier does not order what another simdgroup read.
@example(
    [
        Step(ACCESS, ((0, READ, 0),)),
        Step(SIMDGROUP_BARRIER),
        Step(ACCESS, ((32, READ, 0),)),
        Step(ACCESS, ((32, WRITE, 0),)),
    ],
    0,
)
def test_a_race_is_reported_exactly_where_there_is_one(steps: list[Step], seed: int) -> None:
    assert found_race(steps, seed) == has_race(steps)


def test_the_model_knows_races() -> None:
    write, read = (0, WRITE, 0), (33, READ, 0)
    assert has_race([Step(ACCESS, (write, read))])
    assert not has_race([Step(ACCESS, (write,)), Step(THREADGROUP_BARRIER), Step(ACCESS, (read,))])
    assert has_race([Step(ACCESS, (write,)), Step(SIMDGROUP_BARRIER), Step(ACCESS, (read,))])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if (g == 1) y[0] = 1; else y[1] = y[0];", "by another threadgroup"),
        ("if (g == 0) y[0] = 1; else y[1] = y[0];", "by another threadgroup"),
        ("y[g] = 1; if (g == 2) y[g] = y[0];", "by another threadgroup"),
    ],
)
def test_threadgroups_are_never_ordered(body: str, message: str) -> None:
    kernel = metal_kernel(
        "groups", ["x"], ["y"], f"const uint g = threadgroup_position_in_grid.x; {body}", check="full"
    )
    launch: dict[str, Any] = {"grid": (3, 1, 1), "threadgroup": (1, 1, 1), "init_value": 0}
    with pytest.raises(KernelError, match=message):
        kernel(inputs=[np.zeros(8, np.int32)], output_shapes=[(8,)], output_dtypes=[np.int32], **launch)
