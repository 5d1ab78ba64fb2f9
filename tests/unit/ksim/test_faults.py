"""Each kind of mistake, planted, is found, named and placed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.ksim import KernelError, clang_missing, executor, metal_kernel

pytestmark = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))

SHARED = "const uint t = thread_position_in_threadgroup.x; threadgroup float s[64];\n"
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
SPIN = "volatile int z = 0; while (z == 0) {} y[0] = 1;"
MIXED = f"""
threadgroup atomic_int count;
const uint t = thread_position_in_threadgroup.x;
if (t == 0) atomic_store_explicit(&count, 0, memory_order_relaxed);
{BARRIER}
atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
"""


@dataclass(frozen=True)
class Fault:
    """A kernel over x and y of 64 floats, how it is checked, what its error says."""

    label: str
    body: str
    message: str
    check: str = "fast"
    threads: int = 64
    group: int = 64


FAULTS = [
    Fault(
        "two barriers",
        SHARED + f"if (t < 32) {{ s[t] = 1; {BARRIER} }}\nelse {{ s[t] = 2; {BARRIER} }} y[t] = s[63 - t];",
        r"divergent barrier: this thread is at kernel.metal:\d, others wait at kernel.metal:\d",
    ),
    Fault(
        "barrier after a return",
        SHARED + f"if (t == 3) return;\n{BARRIER} y[t] = 1;",
        r"barrier at kernel.metal:3 reached by (only )?63 of 64 threads",
    ),
    Fault(
        "read past an input",
        SHARED + "y[t] = x[t + 1];",
        r"read at 'x' byte offset 256 \(size 256\) at kernel.metal:2",
    ),
    Fault("read far away", SHARED + "y[t] = x[t * 100000];", r"out of bounds read at 'x'"),
    Fault(
        "read in the slack",
        SHARED + "y[t] = ((const device uchar*)x)[256 + t];",
        "out of bounds read",
        "full",
    ),
    Fault("write past an output", SHARED + "y[t + 1] = 1;", r"out of bounds write at 'y' byte offset 256"),
    Fault(
        "vector at index -1",
        SHARED + "y[t] = ((const device float4*)x)[t - 1u].x;",
        r"out of bounds read at 'x' byte offset 6",
    ),
    Fault(
        "threadgroup memory at index -1",
        SHARED + "threadgroup float* p = s; y[t] = p[t - 1u];",
        r"at threadgroup 's' byte offset 1717",
    ),
    Fault("negative index", SHARED + "y[int(t) - 2000] = 1;", r"out of bounds write at 'y' byte offset -"),
    Fault(
        "write to an input",
        SHARED + "((device float*)x)[t] = 1; y[t] = 0;",
        r"write to read-only \(const\) buffer 'x'",
    ),
    Fault(
        "stack array",
        "float a[4]; for (int i = 0; i < 4; i++) a[i] = x[i]; y[0] = a[int(x[5])];",
        r"array index out of bounds.* at kernel.metal:1",
    ),
    Fault(
        "pointer into a stack array",
        "float a[4]; thread float* p = a; for (int i = 0; i < 4; i++) p[i] = x[i]; y[0] = p[int(x[5])];",
        "array index out of bounds",
    ),
    Fault(
        "matrix past the end of an array in unrolled loops",
        """
        simdgroup_float8x8 m[4];
        #pragma clang loop unroll(full)
        for (int pair = 0; pair < 2; pair++) {
            #pragma clang loop unroll(full)
            for (int i = 0; i <= 2; i++) simdgroup_load(m[2 * pair + i], x, 8);
        }
        simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        #pragma clang loop unroll(full)
        for (int i = 0; i < 4; i++) simdgroup_multiply_accumulate(sum, m[i], m[i], sum);
        simdgroup_store(sum, y, 8);
        """,
        "array index out of bounds",
        threads=32,
        group=32,
    ),
    Fault("threadgroup array", SHARED + f"s[t] = 1; {BARRIER} y[t] = s[t + 1];", "array index out of bounds"),
    Fault(
        "pointer into a threadgroup array",
        SHARED + "threadgroup float* p = s; p[t + 1] = 1; y[t] = 0;",
        r"out of bounds write at threadgroup 's' byte offset 256 \(size 256\)",
    ),
    Fault("misaligned vector", "y[0] = (*(const device float4*)(x + 1)).x;", "misaligned"),
    Fault("division by zero", "y[0] = int(x[5]) / int(x[0]);", "integer division by zero"),
    Fault(
        "stack overflow",
        "float a[1 << 17]; for (int i = 0; i < 1 << 17; i++) a[i] = x[i % 64]; y[0] = a[int(x[1])];",
        "stack overflow",
    ),
    Fault(
        "uninitialised threadgroup memory",
        SHARED + f"if (t < 32) s[t] = x[t]; {BARRIER} y[t] = s[t];",
        r"read of uninitialised threadgroup memory, s\+",
        "full",
    ),
    Fault(
        "output nobody wrote",
        SHARED + "if (t == 0) y[5] = y[6];",
        r"an output byte nobody wrote, y\+24",
        "full",
    ),
    Fault(
        "uninitialised variable", "float v; if (x[0] > 3) v = 1; y[0] = v;", "does not compile.*uninitialized"
    ),
    Fault("missing barrier", SHARED + "s[t] = x[t]; y[t] = s[63 - t];", "uninitialised|data race", "full"),
    Fault(
        "missing barrier at the end of a loop",
        SHARED + f"for (int i = 0; i < 2; i++) {{ s[t] = x[t] + i; {BARRIER} y[t] = s[63 - t]; }}",
        r"data race on s\+.* unsynchronised",
        "full",
    ),
    Fault(
        "missing simdgroup barrier",
        SHARED + "s[t] = x[t]; y[t] = s[t ^ 1];",
        "uninitialised|data race",
        "full",
    ),
    Fault(
        "simdgroup barrier for two simdgroups",
        SHARED + "s[t] = x[t]; simdgroup_barrier(mem_flags::mem_threadgroup); y[t] = s[t ^ 32];",
        "uninitialised|data race",
        "full",
    ),
    Fault(
        "barrier for other memory",
        SHARED
        + f"y[t] = 1; {BARRIER} float v = y[63 - t]; threadgroup_barrier(mem_flags::mem_device); y[t] = v;",
        r"data race on y\+",
        "full",
    ),
    Fault(
        "output written by all",
        "y[0] = x[1];",
        r"data race on y\+0: write after unsynchronised write",
        "full",
    ),
    Fault(
        "two threadgroups on one output",
        SHARED + "if (t == 0) y[0] = 1;",
        "by another threadgroup",
        "full",
        128,
    ),
    Fault("atomic and plain", MIXED + "y[t] = *(threadgroup int*)&count;", r"data race on count\+0", "full"),
    Fault(
        "too much threadgroup memory",
        "threadgroup float z[9000]; z[0] = 1; y[0] = 1;",
        "threadgroup memory of 36000 bytes exceeds the limit of 32768",
    ),
    Fault("too many threads", "y[0] = 1;", r"threadgroup of 1025 threads \(limit 1024\)", "fast", 2048, 1025),
    Fault(
        "simdgroup operation in two branches",
        SHARED + "float v = t & 1 ? simd_sum(x[t]) :\n simd_sum(2 * x[t]); y[t] = v;",
        "divergent simdgroup operation at kernel.metal",
    ),
    Fault("shuffle from nowhere", SHARED + "y[t] = simd_shuffle(x[t], 32);", "simd_shuffle from lane 32"),
    Fault("declaration not understood", "float threadgroup q[4]; y[0] = 1;", "not understood: threadgroup q"),
    Fault("write to const", "x[0] = 1;", "does not compile.*kernel.metal:1"),
    Fault("max of two types", "y[0] = max(x[0], 0);", "does not compile.*ambiguous"),
]


def run(fault: Fault, seed: int) -> Any:
    kernel = metal_kernel("fault", ["x"], ["y"], fault.body, check=fault.check, seed=seed)
    return kernel(
        inputs=[np.arange(64, dtype=np.float32)],
        grid=(fault.threads, 1, 1),
        threadgroup=(fault.group, 1, 1),
        output_shapes=[(64,)],
        output_dtypes=[np.float32],
    )[0]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.label)
def test_a_planted_fault_is_found_in_every_order_of_threads(fault: Fault) -> None:
    for seed in (0, 2):
        with pytest.raises(KernelError) as caught:
            run(fault, seed)
        assert re.search(fault.message, str(caught.value).replace("\n", " "))


@pytest.mark.parametrize("check", ["fast", "full"])
def test_a_kernel_that_never_ends_is_stopped(check: str) -> None:
    with (
        executor.limited(deadline=0.1),
        pytest.raises(KernelError, match=r"more than 0.1 s of processor time"),
    ):
        run(Fault("spin", SPIN, "", check), 0)


def test_a_kernel_that_waits_for_ever_is_stopped_after_a_number_of_switches() -> None:
    body = SHARED + f"s[t] = x[0]; while (s[t] < 1) {{ {BARRIER} }} y[t] = 1;"
    with (
        executor.limited(switches=10_000),
        pytest.raises(KernelError, match="more than 10000 thread switches"),
    ):
        run(Fault("wait", body, ""), 0)


def test_the_simulator_goes_on_after_a_fault() -> None:
    """A kernel that was stopped leaves nothing behind."""
    good = Fault("good", SHARED + f"s[t] = x[t]; {BARRIER} y[t] = s[63 - t];", "", "full")
    for fault in FAULTS[:4]:
        with pytest.raises(KernelError):
            run(fault, 0)
        assert run(good, 1).tolist() == list(range(63, -1, -1))


@pytest.mark.parametrize(
    "body",
    [
        "s[t] = x[t]; simdgroup_barrier(mem_flags::mem_threadgroup); y[t] = s[t ^ 1];",
        f"s[t] = x[t]; {BARRIER} float v = s[t ^ 32]; {BARRIER} s[t] = v; y[t] = s[t];",
        "y[t] = x[t]; threadgroup_barrier(mem_flags::mem_device); y[t] = y[t] + 0;",
        f"threadgroup atomic_int n; if (t == 0) atomic_store_explicit(&n, 0, memory_order_relaxed); {BARRIER}"
        f" atomic_fetch_add_explicit(&n, 1, memory_order_relaxed); {BARRIER}"
        " y[t] = atomic_load_explicit(&n, memory_order_relaxed);",
    ],
    ids=["simdgroup barrier", "threadgroup barriers", "own output", "atomics alone"],
)
def test_a_kernel_without_a_mistake_passes_all_checks(body: str) -> None:
    for seed in (0, 1, 2):
        assert np.isfinite(run(Fault("good", SHARED + body, "", "full"), seed)).all()
