"""The simulator's kernels have the parameters that MLX would generate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.ksim import clang_missing
from tests.ksim.metal_lint import lint
from tests.ksim.signature import (
    KernelCall,
    Recorder,
    kernel_parameters,
    mlx_source,
    same_signature,
    simulated_parameters,
)

BODY = """
    uint i = thread_position_in_grid.x;
    y[i] = T(a[i]) * b + c[0] + a_shape[0] + c_strides[0] + a_ndim + thread_index_in_simdgroup;
"""
CALL = KernelCall(
    {
        "name": "sample",
        "input_names": ["a", "b", "c"],
        "output_names": ["y", "z"],
        "source": BODY,
        "header": "// head\n",
    },
    {
        "inputs": [mx.zeros((16,), mx.float16), mx.array(1.0), np.zeros((3, 1), np.int8)],
        "template": [("T", mx.bfloat16), ("N", 3), ("F", True)],
        "grid": (8, 1, 1),
        "threadgroup": (8, 2, 1),
        "output_shapes": [(16,), (2,)],
        "output_dtypes": [mx.bfloat16, mx.uint32],
    },
)


def changed(**kernel: Any) -> KernelCall:
    return replace(CALL, kernel={**CALL.kernel, **kernel})


def test_mlx_shows_the_text_it_would_compile() -> None:
    text = mlx_source(CALL)
    assert text.startswith("// head\n")
    assert "[[thread_position_in_grid]]" in text
    assert "y[i] = T(a[i])" in text
    assert lint(text, CALL.threads) == []


def test_parameters_are_the_same() -> None:
    found = kernel_parameters(mlx_source(CALL))
    assert found == simulated_parameters(CALL)
    assert found[:3] == [
        "const device float16_t* a",
        "const constant int* a_shape",
        "const constant int& a_ndim",
    ]
    assert "const constant int8_t* c" in found


@pytest.mark.parametrize(
    "call",
    [
        CALL,
        changed(source="y[0] = a[0] + b + c[0]; z[0] = threads_per_grid.x;", atomic_outputs=True),
        changed(source="y[0] = b;  // thread_index_in_threadgroup c_ndim"),
        changed(ensure_row_contiguous=False),
    ],
)
def test_signatures_agree(call: KernelCall) -> None:
    assert same_signature(call)


def test_a_difference_shows() -> None:
    other = changed(source=BODY.replace("a_shape[0]", "a_strides[0]"))
    assert kernel_parameters(mlx_source(CALL)) != simulated_parameters(other)


def test_what_is_printed_otherwise_is_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    mlx_source(CALL)
    print("after")
    assert capfd.readouterr().out == "after\n"


@pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))
def test_launches_are_recorded() -> None:
    recorder = Recorder("full", 2)
    kernel = recorder(name="twice", input_names=["x"], output_names=["y"], source="y[0] = x[0] * 2;")
    launch: dict[str, Any] = {"grid": (1, 1, 1), "threadgroup": (1, 1, 1)}
    (y,) = kernel(inputs=[mx.array([4.0])], output_shapes=[(1,)], output_dtypes=[mx.float32], **launch)
    assert y.tolist() == [8.0]
    assert [call.kernel["name"] for call in recorder.calls] == ["twice"]
    assert same_signature(recorder.calls[0])
