"""Kernels of the shapes that the model needs, small, with references in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.ksim import RawModule, metal_kernel

Floats = npt.NDArray[np.float32]
THREADS = 64

# One threadgroup a row of N elements: a sum over lanes, then over simdgroups.
RMS_NORM = """
    const uint row = threadgroup_position_in_grid.x;
    const uint thread_number = thread_position_in_threadgroup.x;
    threadgroup float parts[32];
    const device T* values = x + row * N;
    float sum = 0.0;
    for (uint i = thread_number * 4; i < N; i += threads_per_threadgroup.x * 4) {
        const float4 four = float4(*(const device vec<T, 4>*)(values + i));
        sum += dot(four, four);
    }
    sum = simd_sum(sum);
    if (thread_index_in_simdgroup == 0) {
        parts[simdgroup_index_in_threadgroup] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = thread_index_in_simdgroup < simdgroups_per_threadgroup ? parts[thread_index_in_simdgroup] : 0.0f;
    sum = simd_sum(sum);
    const float scale = precise::rsqrt(sum / N + epsilon);
    for (uint i = thread_number; i < N; i += threads_per_threadgroup.x) {
        out[row * N + i] = T(float(values[i]) * scale * float(w[i]));
    }
"""

# An 8x8 tile of a product a simdgroup, then rows turned round in threadgroup memory.
TILE_PRODUCT = """
    threadgroup float tile[64];
    const uint lane = thread_index_in_simdgroup;
    const uint column = threadgroup_position_in_grid.x * 8;
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (int k = 0; k < K; k += 8) {
        simdgroup_float8x8 left, right;
        simdgroup_load(left, a + k, K);
        simdgroup_load(right, b + column * K + k, K, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(sum, left, right, sum);
    }
    simdgroup_store(sum, tile, 8);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = lane; i < 64; i += 32) {
        c[(7 - i / 8) * N + column + i % 8] = tile[i];
    }
"""

# Weights in blocks of 32 signed bytes with a half scale, times integers, in CUDA.
BLOCK_DOT = """
#include <cuda_fp16.h>
struct block { unsigned short scale; signed char values[32]; };
extern "C" __global__ void block_dot(const block* w, const int* __restrict__ x, float* y, int columns) {
    __shared__ float sums[4];
    const int row = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    float sum = 0.f;
    for (int b = threadIdx.x; b < columns / 32; b += blockDim.x) {
        const block* one = w + (size_t)row * (columns / 32) + b;
        int dot = 0;
        for (int i = 0; i < 8; i++) {
            const unsigned short* two = (const unsigned short*)one->values + 2 * i;
            dot = __dp4a((int)(two[0] | (unsigned)two[1] << 16), x[b * 8 + i], dot);
        }
        sum += __half2float(__ushort_as_half(one->scale)) * dot;
    }
    for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) y[row] = sums[0] + sums[1] + sums[2] + sums[3];
}
"""

# Tensor cores by inline PTX: C[16, 8] a warp = A[M, K] row-major times B[N, K] transposed.
PTX_PRODUCT = r"""
#include <cuda_fp16.h>
extern "C" __global__ void ptx_product(const half* A, const half* B, float* C, int N, int K) {
    __shared__ __align__(16) half sa[16][16], sb[8][16];
    const int m0 = blockIdx.y * 16, n0 = blockIdx.x * 8, lane = threadIdx.x;
    float c[4] = {0.f, 0.f, 0.f, 0.f};
    for (int k0 = 0; k0 < K; k0 += 16) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&sa[lane / 2][(lane % 2) * 8]);
        const half* from = A + (m0 + lane / 2) * K + k0 + (lane % 2) * 8;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" :: "r"(to), "l"(from));
        if (lane < 16) *(uint4*)&sb[lane / 2][(lane % 2) * 8] =
            *(const uint4*)(B + (n0 + lane / 2) * K + k0 + (lane % 2) * 8);
        asm volatile("cp.async.commit_group;\n" ::);
        asm volatile("cp.async.wait_group 0;\n" ::: "memory");
        __syncthreads();
        unsigned a[4], b[2];
        unsigned pa = (unsigned)__cvta_generic_to_shared(&sa[lane % 16][(lane / 16) * 8]);
        unsigned pb = (unsigned)__cvta_generic_to_shared(&sb[lane % 8][((lane / 8) % 2) * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(pa));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
            : "=r"(b[0]), "=r"(b[1]) : "r"(pb));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
            : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
              "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
        __syncthreads();
    }
    const int g = lane / 4, t = lane % 4;
    C[(m0 + g) * N + n0 + t * 2] = c[0]; C[(m0 + g) * N + n0 + t * 2 + 1] = c[1];
    C[(m0 + g + 8) * N + n0 + t * 2] = c[2]; C[(m0 + g + 8) * N + n0 + t * 2 + 1] = c[3];
}
"""


def rms_norm(text: str, x: Any, w: Any, check: str, seed: int) -> Any:
    """Runs RMS_NORM, or a broken copy of it, over the rows of x."""
    kernel = metal_kernel("rms_norm", ["x", "w", "epsilon"], ["out"], text, check=check, seed=seed)
    (out,) = kernel(
        inputs=[x, w, np.float32(1e-6)],
        template=[("T", x.dtype), ("N", x.shape[1])],
        grid=(x.shape[0] * THREADS, 1, 1),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[x.shape],
        output_dtypes=[x.dtype],
    )
    return out


def tile_product(text: str, a: Floats, b: Floats, check: str, seed: int) -> Floats:
    """Runs TILE_PRODUCT: the 8 rows of a times the rows of b, rows of the result turned round."""
    kernel = metal_kernel("tile_product", ["a", "b"], ["c"], text, check=check, seed=seed)
    (c,) = kernel(
        inputs=[a, b],
        template=[("K", a.shape[1]), ("N", b.shape[0])],
        grid=(b.shape[0] // 8 * 32, 1, 1),
        threadgroup=(32, 1, 1),
        output_shapes=[(8, b.shape[0])],
        output_dtypes=[np.float32],
    )
    return np.asarray(c, np.float32)


def block_dot(text: str, blocks: Any, x: Any, rows: int, check: str, seed: int) -> Floats:
    """Runs BLOCK_DOT: rows of blocks (bytes) times int8 numbers packed in int32."""
    y = np.zeros(rows, np.float32)
    module = RawModule(code=text, check=check, seed=seed)
    module.get_function("block_dot")((rows,), (128,), (blocks, x, y, np.int32(x.size * 4)))
    return y


def random_floats(shape: Sequence[int], seed: int = 0) -> Floats:
    """Normal numbers, the same for the same shape and seed."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check_rms_norm(text: str) -> None:
    """Whether `text` does what RMS_NORM does, in full mode and two orders of threads."""
    x, w = random_floats((3, 136)), random_floats((136,), 1)
    expected = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w
    for seed in (0, 7):
        np.testing.assert_allclose(rms_norm(text, x, w, "full", seed), expected, rtol=2e-5)
