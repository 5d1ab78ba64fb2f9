from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from gguf import quants

from shared.gguf.types import TensorType, block_bytes, block_elements
from shared.quant.dequantise import dequantise, integers

BLOCK_TYPES = [
    (TensorType.Q8_0, quants.Q8_0, (0,)),
    (TensorType.Q2_K, quants.Q2_K, (80, 82)),
    (TensorType.Q4_K, quants.Q4_K, (0, 2)),
    (TensorType.IQ2_XXS, quants.IQ2_XXS, (0,)),
    (TensorType.MXFP4, quants.MXFP4, ()),
]


def random_blocks(type: TensorType, scale_at: tuple[int, ...], count: int) -> npt.NDArray[np.uint8]:
    """Random bits in every field; the F16 scales include zero, subnormals and the largest values."""
    rng = np.random.default_rng(type)
    blocks = rng.integers(0, 256, (count, block_bytes(type)), np.uint8)
    scales = np.concatenate(
        (
            np.array([0.0, -0.0, 6e-8, -6e-5, 65504.0, -65504.0, 1.0], np.float16),
            rng.standard_normal(count).astype(np.float16),
        )
    )
    for at in scale_at:
        blocks[:, at : at + 2] = rng.permutation(scales[:count]).view(np.uint8).reshape(count, 2)
    return blocks


@pytest.mark.parametrize(("type", "oracle", "scale_at"), BLOCK_TYPES)
def test_equals_the_gguf_package_on_random_blocks(
    type: TensorType, oracle: type[quants.Q8_0], scale_at: tuple[int, ...]
) -> None:
    blocks = random_blocks(type, scale_at, 400)
    if type is TensorType.MXFP4:
        blocks[:, 0] = np.resize(np.arange(253, dtype=np.uint8), 400)
    if type is TensorType.IQ2_XXS:
        oracle.init_grid()
    ours = dequantise(type, blocks.reshape(-1), (40, 10 * block_elements(type)))
    theirs = oracle.dequantize_blocks(blocks).reshape(ours.shape)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, theirs)


def test_half_and_single_precision() -> None:
    values = np.array([[0.1, -2.5, 65504.0], [6e-8, 0.0, 1.0]])
    for type, kind in ((TensorType.F16, np.float16), (TensorType.F32, np.float32)):
        stored = values.astype(kind)
        data = np.frombuffer(stored.tobytes(), np.uint8)
        np.testing.assert_array_equal(dequantise(type, data, (2, 3)), stored.astype(np.float32))


def test_integers_at_an_odd_address() -> None:
    values = np.arange(-3, 3, dtype=np.int32)
    data = np.frombuffer(b"x" + values.tobytes(), np.uint8)[1:]
    np.testing.assert_array_equal(integers(data, (2, 3)), values.reshape(2, 3))


def test_refuses_a_wrong_size_or_type() -> None:
    data = np.zeros(34, np.uint8)
    with pytest.raises(ValueError, match="must have 68 bytes, not 34"):
        dequantise(TensorType.Q8_0, data, (2, 32))
    with pytest.raises(ValueError, match="must have"):
        dequantise(TensorType.Q8_0, data, (1, 33))
    with pytest.raises(ValueError, match="Q3_K cannot be dequantised"):
        dequantise(TensorType.Q3_K, data, (1, 32))


def test_tensor_type_ids_are_those_of_the_format() -> None:
    for type, _, _ in BLOCK_TYPES:
        assert gguf.GGMLQuantizationType[type.name] == type
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(type)] == (
            block_elements(type),
            block_bytes(type),
        )
