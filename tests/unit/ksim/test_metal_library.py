"""Metal's functions, one kernel for many of them: values against numpy's or the specification's words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.ksim import clang_missing, metal_kernel

pytestmark = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))
LANES = np.arange(32)


def rows(expressions: list[str], x: npt.NDArray[Any], dtype: Any, before: str = "") -> npt.NDArray[Any]:
    """Each expression by each of 32 lanes, which know `lane` and `v` = x[lane]."""
    body = "const uint lane = thread_index_in_simdgroup; const auto v = x[lane];\n" + before
    body += "".join(f"y[{row} * 32 + lane] = {text};\n" for row, text in enumerate(expressions))
    kernel = metal_kernel("library", ["x"], ["y"], body)
    shape = (len(expressions), 32)
    launch: dict[str, Any] = {"grid": (32, 1, 1), "threadgroup": (32, 1, 1)}
    (found,) = kernel(inputs=[x], output_shapes=[shape], output_dtypes=[dtype], **launch)
    return np.asarray(found)


def test_lanes_of_a_simdgroup() -> None:
    x = (LANES * 7 % 32 + 1).astype(np.int32)
    expected = {
        "simd_sum(v)": np.full(32, x.sum()),
        "simd_max(v)": np.full(32, 32),
        "simd_min(v)": np.full(32, 1),
        "simd_or(v)": np.full(32, 63),
        "simd_and(v)": np.full(32, 0),
        "simd_xor(v)": np.full(32, np.bitwise_xor.reduce(x)),
        "simd_prefix_inclusive_sum(v)": np.cumsum(x),
        "simd_prefix_exclusive_sum(v)": np.cumsum(x) - x,
        "simd_shuffle(v, ushort(31 - lane))": x[::-1],
        "simd_shuffle_xor(v, 5)": x[LANES ^ 5],
        "simd_shuffle_down(v, 3)": np.where(LANES < 29, x[np.minimum(LANES + 3, 31)], x),
        "simd_shuffle_up(v, 3)": np.where(LANES > 2, x[np.maximum(LANES - 3, 0)], x),
        "simd_shuffle_rotate_down(v, 3)": np.roll(x, -3),
        "simd_shuffle_rotate_up(v, 3)": np.roll(x, 3),
        "simd_shuffle_and_fill_up(v, v * 100, 2)": np.where(
            LANES < 2, x[(LANES + 30) % 32] * 100, x[LANES - 2]
        ),
        "simd_shuffle_and_fill_down(v, v * 100, 2)": np.where(
            LANES > 29, x[(LANES + 2) % 32] * 100, x[np.minimum(LANES + 2, 31)]
        ),
        "simd_broadcast(v, 4)": np.full(32, x[4]),
        "simd_broadcast_first(v)": np.full(32, x[0]),
        "quad_sum(v)": np.repeat(x.reshape(8, 4).sum(1), 4),
        "quad_max(v)": np.repeat(x.reshape(8, 4).max(1), 4),
        "quad_shuffle_xor(v, 1)": x[LANES ^ 1],
        "quad_broadcast(v, 2)": np.repeat(x.reshape(8, 4)[:, 2], 4),
        "int(ulong(simd_ballot(lane < 3)))": np.full(32, 7),
        "simd_any(lane == 40)": np.zeros(32),
        "simd_all(lane < 32)": np.ones(32),
        "simd_is_first()": (LANES == 0),
    }
    found = rows(list(expected), x, np.int32)
    for row, (text, values) in enumerate(expected.items()):
        assert found[row].tolist() == values.astype(int).tolist(), text


def test_floating_point_functions() -> None:
    x = np.linspace(-3, 4, 32).astype(np.float32)
    safe = np.abs(x) + 0.1
    expected = {
        "precise::exp(v)": np.exp(x),
        "fast::exp2(v)": np.exp2(x),
        "log(abs(v) + 0.1f)": np.log(safe),
        "log2(abs(v) + 0.1f)": np.log2(safe),
        "sqrt(abs(v))": np.sqrt(np.abs(x)),
        "rsqrt(abs(v) + 0.1f)": 1 / np.sqrt(safe),
        "tanh(v)": np.tanh(x),
        "pow(abs(v), 1.5f)": np.abs(x) ** 1.5,
        "rint(v)": np.rint(x),
        "floor(v)": np.floor(x),
        "ceil(v)": np.ceil(x),
        "trunc(v)": np.trunc(x),
        "round(2.5f)": np.full(32, 3.0),
        "saturate(v)": np.clip(x, 0, 1),
        "sign(v)": np.sign(x),
        "fma(v, v, 1.0f)": x * x + 1,
        "mix(v, 1.0f, 0.25f)": x + (1 - x) * 0.25,
        "clamp(v, -1.0f, 1.0f)": np.clip(x, -1, 1),
        "select(v, 9.0f, v > 0)": np.where(x > 0, 9, x),
        "fmod(v, 1.0f)": np.fmod(x, 1),
        "ldexp(v, 3)": x * 8,
        "max(v, NAN)": x,
        "min(NAN, v)": x,
        "float(half(v))": x.astype(np.float16).astype(np.float32),
        "float(half(v) * half(1.1h))": (x.astype(np.float16) * np.float16(1.1)).astype(np.float32),
        "0.1": np.full(32, np.float32(0.1)),
    }
    found = rows(list(expected), x, np.float32)
    for row, (text, values) in enumerate(expected.items()):
        np.testing.assert_allclose(found[row], values, rtol=2e-6, atol=1e-6, err_msg=text)


def test_integers_and_bits() -> None:
    x = (LANES.astype(np.uint32) * 0x9E3779B9) & 0xFFFFFFFF
    signed = x.view(np.int32)
    expected = {
        "popcount(v)": np.array([bin(value).count("1") for value in x.tolist()]),
        "clz(v)": np.array([32 - value.bit_length() for value in x.tolist()]),
        "mulhi(v, 0x10000u)": x >> 16,
        "rotate(v, 8u)": (x << 8 | x >> 24) & 0xFFFFFFFF,
        "extract_bits(v, 4u, 8u)": x >> 4 & 255,
        "as_type<uint>(as_type<float>(v))": x,
        "uint(as_type<uchar4>(v).z)": x >> 16 & 255,
        "uint(abs(int(v)))": np.abs(signed.astype(np.int64)),
        "uint(short(v))": signed.astype(np.int16).astype(np.int32).view(np.uint32),
        "min(v, 77u)": np.minimum(x, 77),
    }
    found = rows(list(expected), x, np.uint32)
    for row, (text, values) in enumerate(expected.items()):
        assert found[row].tolist() == values.tolist(), text


def test_vectors_swizzles_and_matrices() -> None:
    x = np.arange(32, dtype=np.float32)
    before = """
        float4 a = float4(v, 1, 2, 3); float4 b = a.wzyx; b.xy += float2(10); b.yz = b.zy;
        float2x2 m = float2x2(float2(1, 2), float2(3, 4)); float2 turned = m * float2(v, 1);
        packed_half4 packed = packed_half4(half4(a)); half4 h = half4(packed) * half4(2);
        bool4 mask = a > 1.5f; uchar4 bytes = uchar4(a);
    """
    expected = {
        "b.x": np.full(32, 13.0),
        "b.y": np.ones(32),
        "b.z": np.full(32, 12.0),
        "b[3]": x,
        "dot(a, a)": x * x + 14,
        "turned.x + turned.y": x + 3 + 2 * x + 4,
        "h.w": np.full(32, 6.0),
        "select(a, -a, mask).z": np.full(32, -2.0),
        "float(all(mask)) + any(mask)": np.where(x > 1.5, 1, 1) + 0.0,
        "float(bytes.y + bytes.w)": np.full(32, 4.0),
        "sizeof(packed_float3) + sizeof(float3)": np.full(32, 28.0),
        "max(a, 2.0f).y": np.full(32, 2.0),
    }
    found = rows(list(expected), x, np.float32, before)
    for row, (text, values) in enumerate(expected.items()):
        np.testing.assert_allclose(found[row], values, err_msg=text)


def test_atomics_give_what_was_there() -> None:
    before = """
        threadgroup atomic_int n; if (lane == 0) atomic_store_explicit(&n, 5, memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const int was = atomic_fetch_max_explicit(&n, v, memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    """
    x = LANES.astype(np.int32)
    found = rows(["atomic_load_explicit(&n, memory_order_relaxed)", "was"], x, np.int32, before)
    assert found[0].tolist() == [31] * 32
    assert sorted(found[1])[0] == 5
    assert found[1][0] in (5, 31)
