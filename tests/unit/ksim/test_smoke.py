"""The simulator runs a Metal and a CUDA kernel and names a mistake."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tests.ksim import KernelError, RawModule, clang_missing, metal_kernel

pytestmark = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))

REVERSE = """
    uint i = thread_position_in_threadgroup.x;
    threadgroup float turned[64];
    turned[i] = x[thread_position_in_grid.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[thread_position_in_grid.x] = T(turned[63 - i]);
"""


@pytest.mark.parametrize("check", ["fast", "full"])
def test_a_metal_kernel_takes_numpy_arrays(check: str) -> None:
    kernel = metal_kernel("reverse", ["x"], ["y"], REVERSE, check=check)
    (turned,) = kernel(
        inputs=[np.arange(64, dtype=np.float32)],
        template=[("T", np.float32)],
        grid=(64, 1, 1),
        threadgroup=(64, 1, 1),
        output_shapes=[(64,)],
        output_dtypes=[np.float32],
    )
    assert turned.tolist() == list(range(63, -1, -1))


def test_a_metal_kernel_takes_mx_arrays() -> None:
    kernel = metal_kernel("reverse", ["x"], ["y"], REVERSE)
    (turned,) = kernel(
        inputs=[mx.arange(64).astype(mx.bfloat16)],
        template=[("T", mx.bfloat16)],
        grid=(64, 1, 1),
        threadgroup=(64, 1, 1),
        output_shapes=[(64,)],
        output_dtypes=[mx.bfloat16],
    )
    assert isinstance(turned, mx.array)
    assert turned.dtype == mx.bfloat16
    assert turned.tolist() == list(range(63, -1, -1))


def test_a_missing_barrier_is_named() -> None:
    broken = REVERSE.replace("threadgroup_barrier(mem_flags::mem_threadgroup);", "")
    kernel = metal_kernel("reverse", ["x"], ["y"], broken, check="full")
    with pytest.raises(KernelError, match=r"race|uninitialised"):
        kernel(
            inputs=[np.arange(64, dtype=np.float32)],
            template=[("T", np.float32)],
            grid=(64, 1, 1),
            threadgroup=(64, 1, 1),
            output_shapes=[(64,)],
            output_dtypes=[np.float32],
        )


def test_a_cuda_kernel_runs() -> None:
    code = 'extern "C" __global__ void scale(float* x, int n, float a) { x[threadIdx.x] = n * a; }'
    x = np.zeros(4, np.float32)
    RawModule(code=code).get_function("scale")((1,), (4,), (x, np.int32(3), np.float32(2)))
    assert x.tolist() == [6.0] * 4
