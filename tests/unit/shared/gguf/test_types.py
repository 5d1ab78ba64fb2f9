"""Block sizes against an independent table."""

import gguf
import pytest

from shared.gguf.types import TensorType, ValueType, block_bytes, block_elements, tensor_type


@pytest.mark.parametrize("type", [type for type in TensorType if type is not TensorType.UNKNOWN])
def test_blocks_are_those_of_the_gguf_package(type: TensorType) -> None:
    peer = gguf.GGMLQuantizationType(type)
    assert peer.name == type.name
    assert (block_elements(type), block_bytes(type)) == gguf.GGML_QUANT_SIZES[peer]


def test_value_types_are_those_of_the_gguf_package() -> None:
    assert {type.name: type.value for type in ValueType} == {
        type.name: type.value for type in gguf.GGUFValueType
    }


def test_an_unlisted_id_is_unknown() -> None:
    assert tensor_type(39) is TensorType.MXFP4
    assert tensor_type(4) is TensorType.UNKNOWN
    assert tensor_type(2**32 - 1) is TensorType.UNKNOWN
    with pytest.raises(KeyError):
        block_bytes(TensorType.UNKNOWN)
