"""The lint finds each kind of planted fault in a Metal text, and nothing in one that is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.ksim.metal_lint import lint
from tests.ksim.metal_names import LIBRARY, MLX_PREAMBLE

GOOD = """\
static constant constexpr const int N = 8;
#define TWICE(a) (2.0f * float(a))
struct pair_t { half a; float b; };
enum class side { left, right };
static inline float add(const device float* x, thread float& y, uint i) { y = x[i]; return TWICE(y); }
template <int COUNT> inline float total(const threadgroup float* part) {
float sum = 0.0f;
#pragma clang loop unroll(full)
for (int i = 0; i < COUNT; i++) sum += part[i];
return sum;
}
template <typename T, int K>
[[kernel]] void custom_kernel_sample(
  const device float* x [[buffer(0)]],
  const constant float& scale [[buffer(1)]],
  device float* y [[buffer(2)]],
  uint3 thread_position_in_grid [[thread_position_in_grid]]) {
using Four = vec<T, 4>;
threadgroup T part[N * K], more[2][N];
threadgroup pair_t pairs[4];
threadgroup Four fours[K == 4 ? N : 1 << 10];
constexpr uint LAST = sizeof(pair_t) - 1;
const uint i = thread_position_in_grid.x, j = i + 1;
float t = metal::precise::exp(-INFINITY);
const float4 v = *(const device float4*)(x + i * 4);
threadgroup_barrier(mem_flags::mem_threadgroup);
// BODY
y[i] = add(x, t, i) * scale + v.x * v.yz.y + float(part[j]) + select(1.0f, t, i < LAST);
}
template [[host_name("custom_kernel_sample")]] [[kernel]] decltype(custom_kernel_sample<float, 4>) \
custom_kernel_sample<float, 4>;
"""
IN_BODY = {
    "float* p = y;": "float* has no address space",
    "float& r = t;": "float& has no address space",
    "y[i] = (*(float4*)(y)).x;": "float4* has no address space",
    "const auto& r = t;": "const auto& has no address space",
    "thread float** p = nullptr;": "pointer to a pointer",
    "device thread float* p = nullptr;": "address spaces device and thread",
    "device float one;": "'one' is a variable in device memory",
    "constant int c = 3;": "'c' is in constant memory inside a function",
    "y[i] = erf(t);": "'erf' is neither a name of Metal nor declared here",
    "y[i] = std::max(1.0f, t);": "'std' is neither",
    "y[i] = ceildiv(3, 2);": "'ceildiv' is neither",
    "__builtin_trap();": "'__builtin_trap' is neither",
    'printf("x");': "'printf' is neither",
    "y[i] = v.left_side;": "member 'left_side'",
    "double d = 1;": "'double' does not exist in Metal",
    "goto end;": "'goto' does not exist",
    "int fragment = 0;": "'fragment' does not exist",
    "thread float* p = new float;": "'new' does not exist",
    "long long z = 0;": "'long long' does not exist",
    "long z = 3ll;": "suffix of 3ll",
    "auto f = [&](int a) { return a; };": "a lambda expression",
    "threadgroup float dyn[j];": "a size that is not constant: 'j' is not a constant",
    "threadgroup float none[];": "threadgroup 'none' has no size",
    "threadgroup float big[9000];": "bytes of threadgroup memory, at most 32768",
    "{ threadgroup float inner[4]; }": "'inner' is a threadgroup variable outside",
    "threadgroup float begun[2] = {0, 1};": "'begun' is a threadgroup variable with an initial value",
}
BEFORE = {
    "float clamp(float a) { return a; }": "'clamp' is a name of Metal",
    "using half4x4 = int;": "'half4x4' is a name of Metal",
    "typedef int simd_sum;": "'simd_sum' is a name of Metal",
    "#define select 3": "'select' is a name of Metal",
    "struct Limits { int a; };": "'Limits' is a name of MLX's preamble",
    "#define ceildiv 3": "'ceildiv' is a name of MLX's preamble",
    "inline float log1p(float x) { return x; }": "'log1p' is a name of MLX's preamble",
    "static const float TABLE[2] = {1, 2};": "'TABLE' is outside a function and not in constant memory",
    "constexpr int M = 3;": "'M' is outside a function",
    "inline float g(float* p) { return p[0]; }": "float* has no address space",
    "inline float* h(device float* p) { return p; }": "float* has no address space",
    "inline float k() { threadgroup float z[2]; return z[0]; }": "'z' is a threadgroup variable outside",
    "inline uint q(uint v [[vertex_id]]) { return v; }": "attribute [[vertex_id]]",
    "#define FOO(a) bar(a)": "'bar' in a macro is neither",
    "#include <cmath>": "#include <cmath>",
    "#pragma once": "#pragma once",
}


def test_a_text_that_is_right_passes() -> None:
    assert lint(GOOD, 64) == []


@pytest.mark.parametrize(("statement", "message"), IN_BODY.items())
def test_a_fault_in_the_body_is_found(statement: str, message: str) -> None:
    line = GOOD.count("\n", 0, GOOD.index("// BODY")) + 1
    found = [text for text in lint(GOOD.replace("// BODY", statement), 64) if message in text]
    assert found
    assert found[0].startswith(f"line {line}: ") or "bytes" in message


@pytest.mark.parametrize(("declaration", "message"), BEFORE.items())
def test_a_fault_before_the_kernel_is_found(declaration: str, message: str) -> None:
    assert any(message in text for text in lint(f"{declaration}\n{GOOD}", 64))


def test_threads_have_a_limit() -> None:
    assert lint(GOOD, 1024) == []
    assert lint(GOOD, 1025) == ["1025 threads in a threadgroup, at most 1024 are allowed"]


def test_threadgroup_memory_is_added_up() -> None:
    """part 128 bytes, more 64, pairs 32, fours 128; each variable in units of 16."""
    rest = 32 * 1024 - 128 - 64 - 32 - 128
    full = GOOD.replace("// BODY", f"threadgroup uchar rest[{rest}];")
    assert lint(full, 64) == []
    assert lint(full.replace(f"rest[{rest}]", f"rest[{rest} + 1]"), 64) == [
        "32784 bytes of threadgroup memory, at most 32768 are allowed"
    ]


def test_names_of_the_preamble_are_those_of_the_installed_mlx() -> None:
    mlx = pytest.importorskip("mlx")
    folder = Path(next(iter(mlx.__path__))) / "include/mlx/backend/metal/kernels"
    text = "\n".join(
        (folder / f"{name}.h").read_text(encoding="utf-8") for name in ("utils", "bf16", "complex")
    )
    text = re.sub(r"//[^\n]*|\\\n", " ", text)
    names = set(re.findall(r"^struct (\w+)", text, re.MULTILINE))
    names |= set(
        re.findall(r"^(?:inline|METAL_FUNC) [^=;{}()]*?(\w+)\s*(?:<[^()]*>)?\s*\(", text, re.MULTILINE)
    )
    names |= set(re.findall(r"^typedef [\w ]+ (\w+);", text, re.MULTILINE))
    names |= set(re.findall(r"^#define (\w+)", text, re.MULTILINE))
    names |= set(re.findall(r"^using (\w+) =", text, re.MULTILINE))
    assert len(names) > 20
    assert names - {"operator"} - LIBRARY <= MLX_PREAMBLE
