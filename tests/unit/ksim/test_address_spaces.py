"""Pointers in the wrong address space are found by parsing a kernel as OpenCL C++."""

from __future__ import annotations

import pytest

from tests.ksim import clang_missing
from tests.ksim.address_spaces import address_space_errors

pytestmark = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))

GOOD = """\
static constant constexpr const int N = 8;
struct block { half d; char qs[32]; };
template <typename X>
inline float dot_block(const device block* b, const device X* y) {
float s = 0;
for (int i = 0; i < 32; i++) s += float(b->qs[i]) * float(y[i]);
return s * float(b->d);
}
inline float total(const threadgroup float* p, thread float (&sums)[4]) { sums[0] = p[1]; return sums[0]; }
template <typename T, int K>
[[kernel]] void custom_kernel_sample(
  const device uint8_t* w [[buffer(0)]],
  const device float* x [[buffer(1)]],
  const constant float& scale [[buffer(2)]],
  device float* y [[buffer(3)]],
  uint3 thread_position_in_grid [[thread_position_in_grid]]) {
using Four = vec<T, 4>;
threadgroup float shared_sums[32 * K];
threadgroup atomic_uint bins[4];
const device block* b = (const device block*)w;
block c = b[1];
thread block* own = &c;
y[0] = dot_block(b, x) + scale + float(c.d) + float(own->qs[2]);
float sums[4];
y[1] = total(shared_sums, sums);
float4x4 m;
m[0] = float4(1.0, 2.0f, x[0], y[1]);
y[2] = (m * m[0]).x + float(Four(T(1)).x);
simdgroup_float8x8 a(0.0f), e = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
simdgroup_load(e, shared_sums, 8);
simdgroup_load(a, x, 8, ulong2(0, 0), true);
simdgroup_multiply_accumulate(a, a, e, a);
simdgroup_store(a, y, 8);
atomic_fetch_add_explicit(&bins[1], 1u, memory_order_relaxed);
const bool4 mask = m[0] < 1.0f;
y[4] = select(m[0], float4(0), mask).w + max(m[0], 1.0f).x + simd_shuffle_xor(max(1.0f, y[0]), 4);
for (uint local = 0; local < 2; local++) y[local] = fast::exp(*(const device Four*)(x + local)).x;
// BODY
}
template [[host_name("custom_kernel_sample")]] [[kernel]] decltype(custom_kernel_sample<float16_t, 4>) \
custom_kernel_sample<float16_t, 4>;
"""
# The first four are the commonest: mixed up, forgotten in a cast, forgotten in a variable, cast away.
FAULTS = {
    "device float* p = shared_sums;": "__global float",
    "y[1] = dot_block((const block*)w, x);": "mismatching address spaces",
    "float* q = y;": "__private float",
    "threadgroup float* q = (threadgroup float*)y;": "mismatching address spaces",
    "y[0] = total(x, sums);": "no matching function for call to 'total'",
    "thread float& r = y[0];": "changes address space",
    "device block& r = c;": "changes address space",
    "simdgroup_load(a, sums, 8);": "no matching function for call to 'simdgroup_load'",
    "atomic_load_explicit((device atomic_uint*)bins, memory_order_relaxed);": "mismatching address spaces",
    "constant float* k = x;": "__constant float",
}


def test_a_kernel_that_is_right_passes() -> None:
    assert address_space_errors(GOOD) == []


@pytest.mark.parametrize(("statement", "message"), FAULTS.items())
def test_a_pointer_in_the_wrong_space_is_found(statement: str, message: str) -> None:
    line = GOOD.count("\n", 0, GOOD.index("// BODY")) + 1
    found = address_space_errors(GOOD.replace("// BODY", statement))
    assert len(found) == 1
    assert found[0].startswith(f"line {line}: ")
    assert message in found[0]


def test_a_text_needs_a_kernel() -> None:
    with pytest.raises(ValueError, match="kernel"):
        address_space_errors("inline float f() { return 1; }")
