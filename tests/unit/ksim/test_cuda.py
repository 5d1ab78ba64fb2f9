"""CUDA kernels run as CuPy's RawModule would run them, and their mistakes are found."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.ksim import KernelError, RawKernel, RawModule, clang_missing
from tests.unit.ksim.sample_kernels import BLOCK_DOT, PTX_PRODUCT, block_dot, random_floats

pytestmark = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))
ENTRY = 'extern "C" __global__ void fault(const float* x, float* y) { const int t = threadIdx.x;\n'


@pytest.mark.parametrize(("check", "seed"), [("fast", 0), ("full", 1)])
def test_dot_products_of_blocks(check: str, seed: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-127, 128, (6, 5, 32)).astype(np.int8)
    scales = rng.random((6, 5)).astype(np.float16)
    x = rng.integers(-127, 128, 160).astype(np.int8)
    blocks = np.concatenate([scales.view(np.uint8).reshape(6, 5, 2), values.view(np.uint8)], -1)
    found = block_dot(BLOCK_DOT, blocks, x.view(np.int32), 6, check, seed)
    dots = (values.astype(np.int64) * x.reshape(5, 32)).sum(-1)
    np.testing.assert_allclose(found, (dots * scales.astype(np.float64)).sum(-1), rtol=1e-6)


@pytest.mark.parametrize(("check", "seed"), [("fast", 0), ("full", 1)])
def test_tensor_cores_by_inline_ptx(check: str, seed: int) -> None:
    a, b = random_floats((32, 48)).astype(np.float16), random_floats((16, 48), 1).astype(np.float16)
    c = np.zeros((32, 16), np.float32)
    module = RawModule(code=PTX_PRODUCT, check=check, seed=seed)
    module.get_function("ptx_product")((2, 2), (32,), (a, b, c, np.int32(16), np.int32(48)))
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32).T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("inner", "rows", "columns"), [(32, 4, 2), (16, 2, 1)])
def test_tensor_cores_on_bytes(inner: int, rows: int, columns: int) -> None:
    """Rows and columns come from shared memory as the instructions want them."""
    operands = [f"%{4 + at}" for at in range(rows + columns)]
    inputs = ", ".join([f'"r"(a[{at}])' for at in range(rows)] + [f'"r"(b[{at}])' for at in range(columns)])
    load = "ldmatrix.sync.aligned.m8n8.{}.shared.b16 {{{}}}, [%{}];"
    words = [", ".join(f"%{at}" for at in range(count)) for count in (rows, columns)]
    outputs = [
        ", ".join(f'"=r"({name}[{at}])' for at in range(count))
        for name, count in (("a", rows), ("b", columns))
    ]
    source = f"""
    extern "C" __global__ void product(const signed char* A, const signed char* B, int* C) {{
        __shared__ __align__(16) signed char tile[24 * {inner}];
        const int lane = threadIdx.x;
        for (int at = lane; at < 16 * {inner}; at += 32) tile[at] = A[at];
        for (int at = lane; at < 8 * {inner}; at += 32) tile[16 * {inner} + at] = B[at];
        __syncthreads();
        unsigned a[{rows}], b[{columns}];
        const signed char* own = tile + lane % 16 * {inner} + lane / 16 % {rows // 2} * 16;
        unsigned address = (unsigned)__cvta_generic_to_shared(own);
        asm volatile("{load.format(f"x{rows}", words[0], rows)}" : {outputs[0]} : "r"(address));
        own = tile + (16 + lane % 8) * {inner} + lane / 8 % {columns} * 16;
        address = (unsigned)__cvta_generic_to_shared(own);
        asm volatile("{load.format(f"x{columns}", words[1], columns)}" : {outputs[1]} : "r"(address));
        int c[4] = {{1, 2, 3, 4}};
        asm volatile("mma.sync.aligned.m16n8k{inner}.row.col.s32.s8.s8.s32 {{%0, %1, %2, %3}}, "
                     "{{{", ".join(operands[:rows])}}}, {{{", ".join(operands[rows:])}}}, {{%0, %1, %2, %3}};"
                     : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : {inputs});
        for (int at = 0; at < 4; at++)
            C[(lane / 4 + at / 2 * 8) * 8 + lane % 4 * 2 + at % 2] = c[at];
    }}"""
    random = np.random.default_rng(inner)
    a, b = (random.integers(-128, 128, (count, inner)).astype(np.int8) for count in (16, 8))
    found = np.zeros((16, 8), np.int32)
    RawKernel(source, "product", check="full")((1,), (32,), (a, b, found))
    start = np.tile(np.array([[1, 2]]), (16, 4)) + np.repeat([[0], [2]], 8, axis=0)
    assert np.array_equal(found, a.astype(int) @ b.T.astype(int) + start)


def test_tensor_cores_by_wmma() -> None:
    code = """
    #include <mma.h>
    using namespace nvcuda;
    extern "C" __global__ void product(const half* A, const half* B, float* C, int N, int K) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
        wmma::fill_fragment(c, 0.0f);
        for (int k = 0; k < K; k += 16) {
            wmma::load_matrix_sync(a, A + k, K);
            wmma::load_matrix_sync(b, B + blockIdx.x * 16 * K + k, K);
            wmma::mma_sync(c, a, b, c);
        }
        wmma::store_matrix_sync(C + blockIdx.x * 16, c, N, wmma::mem_row_major);
    }
    """
    a, b = random_floats((16, 32)).astype(np.float16), random_floats((32, 32), 1).astype(np.float16)
    c = np.zeros((16, 32), np.float32)
    RawModule(code=code).get_function("product")((2,), (32,), (a, b, c, np.int32(32), np.int32(32)))
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32).T, rtol=1e-4, atol=1e-4)


def test_warps_votes_and_bytes() -> None:
    code = """
    extern "C" __global__ void warp(int* y) {
        const int t = threadIdx.x;
        y[t] = __shfl_down_sync(~0u, t, 4, 8);
        y[32 + t] = __ballot_sync(~0u, t % 3 == 0);
        y[64 + t] = __reduce_add_sync(~0u, t);
        y[96 + t] = __dp4a(0x01020304, 0x01010101, t);
        y[128 + t] = __byte_perm(0x33221100, 0x77665544, 0x7531);
        y[160 + t] = __syncthreads_count(t < 5);
        y[192 + t] = __popc(t) + 100 * __clz(t) + 10000 * (t & 1 ? __shfl_xor_sync(0xaaaaaaaau, t, 2) : 0);
    }
    """
    y = np.zeros(7 * 32, np.int32)
    RawKernel(code, "warp", check="full")((1,), (32,), (y,))
    rows = y.reshape(7, 32)
    t = np.arange(32)
    assert rows[0].tolist() == np.where(t % 8 < 4, t + 4, t).tolist()
    assert rows[1][0] == sum(1 << lane for lane in range(0, 32, 3))
    assert rows[2][0] == 496
    assert rows[3].tolist() == (10 + t).tolist()
    assert rows[4][0] == 0x77553311
    assert rows[5].tolist() == [5] * 32
    assert rows[6][3] == 2 + 3000 + 10000


FAULTS: list[tuple[str, str, str, str]] = [
    (
        "divergent __syncthreads",
        "if (t < 32) __syncthreads();\n else __syncthreads(); y[t] = 1; }",
        "fast",
        "divergent barrier",
    ),
    (
        "read past an array",
        "y[t] = x[t + 1]; }",
        "fast",
        r"out of bounds read at 'argument 0' byte offset 256",
    ),
    ("write to const", "((float*)x)[t] = 1; }", "fast", "read-only"),
    (
        "missing __syncthreads",
        "__shared__ float s[64]; s[t] = x[t]; y[t] = s[63 - t]; }",
        "full",
        "uninitialised|data race",
    ),
    (
        "missing __syncwarp",
        "__shared__ float s[64]; s[t] = x[t]; y[t] = s[t ^ 1]; }",
        "full",
        "uninitialised|data race",
    ),
    ("lane not in its mask", "y[t] = __shfl_sync(0x0000ffffu, x[t], 0); }", "fast", "not in its own mask"),
    (
        "lanes that never come",
        "if (t & 1) y[t] = __shfl_sync(0xffffffffu, x[t], 0); }",
        "fast",
        "deadlock|has exited",
    ),
    (
        "shared memory too large",
        "__shared__ float s[13000]; s[t] = 1; y[t] = s[t]; }",
        "fast",
        "exceeds the limit of 49152",
    ),
    ("unknown PTX", 'asm volatile("bar.sync 0;"); y[t] = 1; }', "fast", "unsupported PTX: bar.sync"),
    (
        "operand of the wrong size",
        'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(y), "l"(x)); }',
        "fast",
        "does not compile.*operand size",
    ),
    (
        "no dynamic memory",
        "extern __shared__ float s[]; s[t] = 1; y[t] = s[t]; }",
        "fast",
        "the launch gives none",
    ),
]


@pytest.mark.parametrize(("label", "body", "check", "message"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_planted_fault_is_found(label: str, body: str, check: str, message: str) -> None:
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    for seed in (0, 5):
        with pytest.raises(KernelError) as caught:
            RawKernel(ENTRY + body, "fault", check=check, seed=seed)((1,), (64,), (x, y))
        assert re.search(message, str(caught.value).replace("\n", " "))


def test_dynamic_shared_memory_has_its_limit() -> None:
    body = "extern __shared__ float s[]; s[t] = x[t]; __syncthreads(); y[t] = s[63 - t]; }"
    kernel = RawKernel(ENTRY + body, "fault", check="full")
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    kernel((1,), (64,), (x, y), shared_mem=256)
    assert y.tolist() == x[::-1].tolist()
    with pytest.raises(KernelError, match="max_dynamic_shared_size_bytes"):
        kernel((1,), (64,), (x, y), shared_mem=65536)
    kernel.max_dynamic_shared_size_bytes = 65536
    kernel((1,), (64,), (x, y), shared_mem=65536)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(1, np.float32), 3, np.float32(2)), "int64 passed for a 4-byte integer"),
        ((np.zeros(1, np.float32), np.int32(3), 2.0), "float64 passed for a 4-byte float"),
        ((np.zeros(1, np.float32), np.float32(3), np.float32(2)), "float32 passed for a 4-byte integer"),
        ((np.zeros(1, np.float32), np.int32(3)), "takes 3 arguments, 2 given"),
        ((np.float32(1), np.int32(3), np.float32(2)), "passed for a pointer"),
        (
            (np.zeros(1, np.float32), np.zeros(1, np.int32), np.float32(2)),
            "an array passed for a 4-byte integer",
        ),
        ((np.zeros((4, 4), np.float32)[:, 1], np.int32(3), np.float32(2)), "not C-contiguous"),
    ],
)
def test_arguments_must_fit_the_parameters(arguments: tuple[Any, ...], message: str) -> None:
    module = RawModule(code='extern "C" __global__ void scale(float* x, int n, float a) { x[0] = n * a; }')
    kernel = module.get_function("scale")
    x = np.zeros(1, np.float32)
    kernel((1,), (1,), (x, np.int32(3), np.float32(2)))
    assert x[0] == 6
    with pytest.raises(KernelError, match=message):
        kernel((1,), (1,), arguments)


def test_templates_defines_and_unknown_names() -> None:
    code = "template <int N> __global__ void fill(int* x) { x[threadIdx.x] = N + OFFSET; }"
    module = RawModule(code=code, options=("-DOFFSET=5", "--std=c++17"), name_expressions=["fill<7>"])
    x = np.zeros(4, np.int32)
    module.get_function("fill<7>")((1,), (4,), (x,))
    assert x.tolist() == [12] * 4
    with pytest.raises(KernelError, match="no kernel 'fill<8>'"):
        module.get_function("fill<8>")
    with pytest.raises(ValueError, match="code or the path"):
        RawModule()


def test_subnormal_numbers_are_flushed_where_an_option_says_so() -> None:
    code = 'extern "C" __global__ void halve(float* x) { x[threadIdx.x] *= 0.5f; }'
    for options, expected in (((), 2.0**-127), (("--std=c++17", "-ftz=true"), 0.0)):
        x = np.full(1, 2.0**-126, np.float32)
        RawKernel(code, "halve", options)((1,), (1,), (x,))
        assert x[0] == expected
