"""Metal kernels give what they should, through the interface of mx.fast.metal_kernel."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.ksim import clang_missing, executor, metal_kernel
from tests.unit.ksim.sample_kernels import RMS_NORM, TILE_PRODUCT, random_floats, rms_norm, tile_product

pytestmark = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))


def run(body: str, inputs: dict[str, Any], count: int = 32, dtype: Any = np.float32, **more: Any) -> Any:
    """One threadgroup of `count` threads, one output y of `count` elements."""
    launch: dict[str, Any] = {"grid": (count, 1, 1), "threadgroup": (count, 1, 1)}
    for name in ("template", "init_value", "grid", "threadgroup", "verbose"):
        if name in more:
            launch[name] = more.pop(name)
    kernel = metal_kernel("sample", list(inputs), ["y"], body, **more)
    return kernel(inputs=list(inputs.values()), output_shapes=[(count,)], output_dtypes=[dtype], **launch)[0]


@pytest.mark.parametrize(("check", "seed"), [("fast", 0), ("full", 0), ("full", 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rms_norm(check: str, seed: int, dtype: Any) -> None:
    x, w = random_floats((5, 256)).astype(dtype), random_floats((256,), 1).astype(dtype)
    wide = x.astype(np.float32)
    expected = wide / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-6) * w.astype(np.float32)
    found = rms_norm(RMS_NORM, x, w, check, seed).astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=2e-5 if dtype == np.float32 else 2e-3, atol=1e-6)


@pytest.mark.parametrize(("check", "seed"), [("fast", 0), ("full", 0), ("full", 1)])
def test_products_of_simdgroup_matrices(check: str, seed: int) -> None:
    a, b = random_floats((8, 48)), random_floats((24, 48), 1)
    found = tile_product(TILE_PRODUCT, a, b, check, seed)
    np.testing.assert_allclose(found, (a @ b.T)[::-1], rtol=1e-5, atol=1e-5)


def test_the_same_seed_gives_the_same_order() -> None:
    body = """
        threadgroup atomic_int next; const uint t = thread_position_in_threadgroup.x;
        if (t == 0) atomic_store_explicit(&next, 0, memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        y[t] = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
    """
    orders = [
        run(body, {"x": np.zeros(8, np.float32)}, dtype=np.int32, seed=seed).tolist() for seed in (3, 3, 4, 0)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert orders[3] != orders[0]


def test_subnormal_numbers_may_be_flushed() -> None:
    x = {"x": np.full(8, 1e-39, np.float32)}
    body = "y[thread_index_in_threadgroup] = x[0] * 2.0f;"
    assert run(body, x)[0] == np.float32(1e-39) * 2
    assert run(body, x, flush_subnormals=True)[0] == 0
    assert run(body, x)[0] != 0


def test_threadgroups_at_the_edge_are_partial() -> None:
    found = run(
        "y[thread_position_in_grid.x] = threads_per_threadgroup.x + 100 * threadgroup_position_in_grid.x;",
        {"x": np.zeros(8, np.float32)},
        70,
        grid=(70, 1, 1),
        threadgroup=(32, 1, 1),
    )
    assert found.tolist() == [32] * 32 + [132] * 32 + [206] * 6


def test_thread_attributes() -> None:
    body = """
        const uint i = thread_position_in_grid.x + threads_per_grid.x * thread_position_in_grid.y;
        y[i] = thread_index_in_simdgroup + 100 * simdgroup_index_in_threadgroup
             + 1000 * thread_index_in_threadgroup
             + 100000 * simdgroups_per_threadgroup + 1000000 * threadgroups_per_grid.y;
    """
    found = run(body, {"x": np.zeros(8, np.float32)}, 96, np.int32, grid=(48, 2, 1), threadgroup=(48, 1, 1))
    thread = np.tile(np.arange(48), 2)
    assert found.tolist() == (thread % 32 + 100 * (thread // 32) + 1000 * thread + 2200000).tolist()


def test_shapes_strides_and_scalars_reach_the_kernel() -> None:
    body = "y[thread_index_in_simdgroup] = x_shape[1] + 10 * x_strides[0] + 100 * x_ndim + 1000 * n + flag;"
    found = run(body, {"x": np.zeros((2, 3), np.float16), "n": 7, "flag": True}, dtype=np.int32)
    assert found[0] == 3 + 30 + 200 + 7000 + 1


def test_an_input_may_keep_its_strides() -> None:
    body = """
        const uint i = thread_index_in_threadgroup;
        y[i] = x[(i / 4) * x_strides[0] + (i % 4) * x_strides[1]];
    """
    x = random_floats((4, 8))
    assert run(body, {"x": x.T}, ensure_row_contiguous=False).tolist() == x.T.reshape(-1).tolist()
    assert run(body, {"x": x.T}).tolist() == x.T.reshape(-1).tolist()
    with pytest.raises(ValueError, match="negative"):
        run(body, {"x": x.T[::-1]}, ensure_row_contiguous=False)


def test_mlx_arrays_come_and_go() -> None:
    x = mx.arange(32).astype(mx.bfloat16)
    body = "const uint i = thread_index_in_threadgroup; y[i] = T(float(x[i]) * 1.01f) + s;"
    found = run(
        body, {"x": x, "s": mx.array(0.5, mx.bfloat16)}, dtype=mx.bfloat16, template=[("T", mx.bfloat16)]
    )
    assert found.dtype == mx.bfloat16
    expected = (x.astype(mx.float32) * 1.01).astype(mx.bfloat16) + mx.array(0.5, mx.bfloat16)
    assert mx.array_equal(found, expected)


def test_templates_take_types_numbers_and_flags() -> None:
    template = [("T", np.int16), ("N", 5), ("FLAG", True)]
    found = run(
        "y[thread_index_in_threadgroup] = FLAG ? T(N + 65536) : T(0);",
        {"x": np.zeros(8, np.float32)},
        template=template,
    )
    assert found[0] == 5


def test_metal_has_no_doubles() -> None:
    with pytest.raises(ValueError, match="no type float64"):
        run("y[0] = x[0];", {"x": np.zeros(8)})


def test_outputs_begin_as_asked() -> None:
    body = "if (thread_index_in_threadgroup == 1) y[1] = 2;"
    x = {"x": np.zeros(8, np.float32)}
    assert run(body, x, init_value=3).tolist() == [3, 2] + [3] * 30
    assert np.isnan(run(body, x)[0])
    assert run(body, x, dtype=mx.bfloat16, init_value=1.5).tolist() == [1.5, 2] + [1.5] * 30


def test_atomic_outputs() -> None:
    kernel = metal_kernel(
        "count",
        ["x"],
        ["n"],
        "atomic_fetch_add_explicit(&n[0], x[thread_position_in_grid.x], memory_order_relaxed);",
        atomic_outputs=True,
        check="full",
    )
    (count,) = kernel(
        inputs=[np.arange(96, dtype=np.int32)],
        grid=(96, 1, 1),
        threadgroup=(32, 1, 1),
        output_shapes=[(1,)],
        output_dtypes=[np.int32],
        init_value=0,
    )
    assert count.tolist() == [95 * 48]


def test_names_and_arrays_must_match() -> None:
    kernel = metal_kernel("two", ["a", "b"], ["y"], "y[0] = a[0] + b[0];")
    arguments: dict[str, Any] = {"grid": (1, 1, 1), "threadgroup": (1, 1, 1), "output_dtypes": [np.float32]}
    with pytest.raises(ValueError, match="1 inputs for 2 names"):
        kernel(inputs=[np.zeros(8, np.float32)], output_shapes=[(1,)], **arguments)
    with pytest.raises(ValueError, match="shapes and dtypes"):
        kernel(inputs=[np.zeros(8, np.float32), np.zeros(8, np.float32)], output_shapes=[], **arguments)
    with pytest.raises(ValueError, match="check is one of"):
        metal_kernel("two", ["a"], ["y"], "", check="some")


def test_verbose_prints_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    run("y[thread_index_in_threadgroup] = x[0];", {"x": np.zeros(8, np.float32)}, verbose=True)
    assert "const device float* x" in capsys.readouterr().out


def test_launches_are_counted() -> None:
    body = """
        threadgroup float s[32]; const uint t = thread_index_in_threadgroup;
        s[t] = 1; threadgroup_barrier(mem_flags::mem_threadgroup); y[t] = simd_sum(s[31 - t]);
    """
    before = executor.counts.launches
    run(body, {"x": np.zeros(8, np.float32)})
    assert executor.counts.launches == before + 1
    counted = {
        name: executor.counts.of_last(name) for name in ("barriers", "warp_collectives", "threads", "shared")
    }
    assert counted == {"barriers": 1, "warp_collectives": 1, "threads": 32, "shared": 128}


def test_an_empty_grid_runs_nothing() -> None:
    found = run(
        "y[thread_position_in_grid.x] = 1;",
        {"x": np.zeros(8, np.float32)},
        grid=(0, 1, 1),
        threadgroup=(1, 1, 1),
    )
    assert np.isnan(found).all()
