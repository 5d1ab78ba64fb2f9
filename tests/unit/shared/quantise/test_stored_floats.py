"""Numbers of a checkpoint, format by format, against their definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shared.gguf.types import TensorType
from shared.quant.dequantise import dequantise
from shared.quantise.mxfp4 import repack
from shared.quantise.safetensors import Checkpoint, CheckpointError
from shared.quantise.stored_floats import FloatMatrix, float_matrix
from tests.support.tiny_checkpoints import Stored, write_safetensors


def opened(folder: Path, tensors: dict[str, Stored]) -> tuple[Checkpoint, FloatMatrix]:
    write_safetensors(folder / "model.safetensors", tensors)
    checkpoint = Checkpoint.open(folder)
    try:
        return checkpoint, float_matrix(checkpoint, checkpoint.tensors["w.weight"])
    except CheckpointError:
        checkpoint.close()
        raise


def floats(folder: Path, tensors: dict[str, Stored]) -> np.ndarray:
    checkpoint, matrix = opened(folder, tensors)
    with checkpoint:
        return matrix.floats(checkpoint, 0, matrix.rows)


def e4m3(code: int) -> float:
    exponent, mantissa = code >> 3 & 15, code & 7
    size = (1 + mantissa / 8) * 2.0 ** (exponent - 7) if exponent else mantissa / 8 * 2.0**-6
    return -size if code & 128 else size


def test_plain_floats(tmp_path: Path) -> None:
    values = np.array([[1.5, -2.25, 3e-5], [0.0, 65504.0, -1.0]], np.float32)
    for dtype, data in (
        ("F32", values),
        ("F16", values.astype("<f2")),
        ("F64", values.astype("<f8")),
        ("BF16", (values.view("<u4") >> 16).astype("<u2")),
    ):
        read = floats(tmp_path, {"w.weight": (dtype, data, (2, 3))})
        expected = values if dtype != "BF16" else (data.astype("<u4") << 16).view("<f4")
        expected = data.astype(np.float32) if dtype == "F16" else expected
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, expected)


def test_every_code_of_fp8(tmp_path: Path) -> None:
    codes = np.arange(256, dtype=np.uint8)
    scales = ("F8_E8M0", np.array([[124, 130]], np.uint8), (1, 2))
    read = floats(tmp_path, {"w.weight": ("F8_E4M3", codes, (1, 256)), "w.scale": scales})[0]
    finite = [code for code in range(256) if code & 127 != 127]
    assert np.isnan(read[[127, 255]]).all()
    expected = [e4m3(code) * 2.0 ** (-3 if code < 128 else 3) for code in finite]
    assert read[finite].tolist() == expected


def test_fp8_blocks_at_the_edges_of_a_matrix(tmp_path: Path) -> None:
    rows, columns = 300, 200
    codes = np.full((rows, columns), 56, np.uint8)  # one
    for name, dtype, scales in (
        ("w.scale", "F8_E8M0", np.arange(120, 126, dtype=np.uint8)),
        ("w.weight_scale_inv", "F32", 2.0 ** np.arange(-7, -1, dtype="<f4")),
    ):
        stored = {"w.weight": ("F8_E4M3", codes, (rows, columns)), name: (dtype, scales, (3, 2))}
        checkpoint, matrix = opened(tmp_path, stored)
        with checkpoint:
            whole = matrix.floats(checkpoint, 0, rows)
            part = matrix.floats(checkpoint, 128, 290)
        expected = 2.0 ** np.arange(-7, -1).reshape(3, 2).repeat(128, 0).repeat(128, 1)[:rows, :columns]
        np.testing.assert_array_equal(whole, expected)
        np.testing.assert_array_equal(part, expected[128:290])


@pytest.mark.parametrize(("dtype", "width"), [("I8", 16), ("U8", 16), ("F4", 32)])
def test_fp4_low_nibble_first_and_the_same_in_mxfp4(tmp_path: Path, dtype: str, width: int) -> None:
    codes = np.random.default_rng(1).integers(0, 256, (5, 16), np.uint8)
    exponents = np.array([127, 120, 0, 130, 254], np.uint8).reshape(5, 1)
    stored = {"w.weight": (dtype, codes, (5, width)), "w.scale": ("F8_E8M0", exponents, (5, 1))}
    checkpoint, matrix = opened(tmp_path, stored)
    with checkpoint:
        read = matrix.floats(checkpoint, 0, 5)
        blocks = repack(*matrix.fp4(checkpoint))
    magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    with np.errstate(over="ignore"):
        for row in range(5):
            for column in range(32):
                code = int(codes[row, column // 2]) >> 4 * (column % 2) & 15
                size = magnitudes[code & 7] * 2.0 ** (int(exponents[row, 0]) - 127)
                assert read[row, column] == np.float32(-size if code & 8 else size)
    np.testing.assert_array_equal(dequantise(TensorType.MXFP4, blocks.reshape(-1), (5, 32)), read)


def test_a_scale_that_is_no_number(tmp_path: Path) -> None:
    codes = np.ones((1, 16), np.uint8)
    scales = ("F8_E8M0", np.array([255], np.uint8), (1, 1))
    checkpoint, matrix = opened(tmp_path, {"w.weight": ("I8", codes, (1, 16)), "w.scale": scales})
    with checkpoint:
        assert np.isnan(matrix.floats(checkpoint, 0, 1)).all()
        with pytest.raises(ValueError, match="not finite"):
            repack(*matrix.fp4(checkpoint))


FP8 = ("F8_E4M3", np.zeros((2, 256), np.uint8), (2, 256))
SCALE = np.zeros(2, np.uint8)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"w.weight": FP8}, "has no scales beside it"),
        (
            {"w.weight": FP8, "w.scale": ("F8_E8M0", SCALE, (2, 1))},
            r"F8_E8M0 \[2, 1\], expected F8_E8M0 \[1, 2\]",
        ),
        ({"w.weight": FP8, "w.scale": ("I8", SCALE, (1, 2))}, "scales of I8"),
        ({"w.weight": ("I8", np.zeros(16, np.uint8), (1, 16))}, "has no scales beside it"),
        ({"w.weight": ("I8", np.zeros(24, np.uint8), (1, 24))}, "not a multiple of 32"),
        ({"w.weight": ("I64", np.zeros(2, "<i8"), (1, 2))}, "holds no weights"),
        ({"w.weight": ("F32", np.zeros(2, "<f4"), (1, 2, 1))}, "one or two dimensions"),
        ({"w.weight": ("F32", np.zeros(0, "<f4"), (0, 2))}, "one or two dimensions"),
    ],
)
def test_refusals(tmp_path: Path, tensors: dict[str, Stored], reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        opened(tmp_path, tensors)
