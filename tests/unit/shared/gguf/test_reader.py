"""Reading well-formed files: the golden models, against the `gguf` package, and small written ones."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from shared.errors import ModelFileError
from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType, ValueType
from shared.gguf.values import StringArray
from shared.gguf.writer import ArrayValue, TensorData, encode_header, write_gguf
from tests.support.golden import GOLDEN, tiny_pro, tiny_q2

FILES = [tiny_q2(), tiny_pro(), GOLDEN / "tokenizer-only.gguf"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_metadata_are_those_that_the_gguf_package_reads(path: Path) -> None:
    peer = gguf.GGUFReader(path)
    with GgufFile.open(path) as file:
        theirs = {key: field for key, field in peer.fields.items() if not key.startswith("GGUF.")}
        assert list(file.metadata) == list(theirs)
        for key, field in theirs.items():
            value = file.metadata[key]
            assert file.metadata_type(key) == field.types[0]
            element = field.types[1] if len(field.types) > 1 else None
            assert file.element_type(key) == element
            assert (list(value) if element is not None else value) == field.contents(), key


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_tensors_are_those_that_the_gguf_package_reads(path: Path) -> None:
    peer = gguf.GGUFReader(path)
    with GgufFile.open(path) as file:
        assert list(file.tensors) == [tensor.name for tensor in peer.tensors]
        for tensor in peer.tensors:
            info = file.tensors[tensor.name]
            assert info.type == tensor.tensor_type
            assert info.dims == tuple(tensor.shape)
            assert info.offset == tensor.data_offset
            assert info.nbytes == tensor.n_bytes
            assert file.data(tensor.name).tobytes() == tensor.data.tobytes()


def test_data_are_read_only_views_that_outlive_the_file() -> None:
    file = GgufFile.open(tiny_q2())
    view = file.data("output_norm.weight")
    expected = view.tobytes()
    assert view.base is not None
    assert not view.flags.writeable
    file.close()
    assert view.tobytes() == expected
    with pytest.raises(ValueError, match="closed"):
        file.data("output_norm.weight")
    with pytest.raises(KeyError):
        file.data("no such tensor")
    file.close()  # a second time is fine


def test_every_scalar_type_and_nested_arrays(tmp_path: Path) -> None:
    scalars: list[tuple[str, ValueType, object]] = [
        ("u8", ValueType.UINT8, 255),
        ("i8", ValueType.INT8, -128),
        ("u16", ValueType.UINT16, 65535),
        ("i16", ValueType.INT16, -32768),
        ("u32", ValueType.UINT32, 2**32 - 1),
        ("i32", ValueType.INT32, -(2**31)),
        ("u64", ValueType.UINT64, 2**64 - 1),
        ("i64", ValueType.INT64, -(2**63)),
        ("f32", ValueType.FLOAT32, 0.5),
        ("f64", ValueType.FLOAT64, 0.1),
        ("yes", ValueType.BOOL, True),
        ("no", ValueType.BOOL, False),
        ("text", ValueType.STRING, "zwölf ｜"),
    ]
    inner = [ArrayValue(ValueType.STRING, ["a", ""]), ArrayValue(ValueType.BOOL, [True, False])]
    path = tmp_path / "a.gguf"
    write_gguf(path, [*scalars, ("nested", ValueType.ARRAY, ArrayValue(ValueType.ARRAY, inner))], [])
    with GgufFile.open(path) as file:
        for key, value_type, value in scalars:
            assert file.metadata[key] == value
            assert type(file.metadata[key]) is type(value)
            assert file.metadata_type(key) is value_type
            assert file.element_type(key) is None
        strings, bools = file.metadata["nested"]  # type: ignore[misc, union-attr]
        assert strings == ["a", ""]
        assert isinstance(bools, np.ndarray)
        assert bools.tolist() == [True, False]
        assert file.element_type("nested") is ValueType.ARRAY


def test_a_string_array_is_a_sequence(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    write_gguf(path, [("k", ValueType.ARRAY, ArrayValue(ValueType.STRING, ["eins", "", "drei"]))], [])
    with GgufFile.open(path) as file:
        texts = file.metadata["k"]
    assert isinstance(texts, StringArray)
    assert len(texts) == 3
    assert (texts[0], texts[1], texts[-1]) == ("eins", "", "drei")
    assert texts[1:] == ["", "drei"]
    assert list(texts) == ["eins", "", "drei"]
    assert texts != ["eins"]
    for outside in (3, -4):
        with pytest.raises(IndexError):
            texts[outside]


def test_text_that_is_not_utf8_fails_on_access(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    entries = [
        ("k", ValueType.ARRAY, ArrayValue(ValueType.STRING, ["good", "BAD!"])),
        ("t", ValueType.STRING, "BAD!"),
    ]
    path.write_bytes(encode_header(entries, []).replace(b"BAD!", b"\xff\xfe\xfd!"))
    with GgufFile.open(path) as file:
        texts = file.metadata["k"]
        assert isinstance(texts, StringArray)
        assert texts[0] == "good"
        with pytest.raises(ModelFileError, match=r"'k'\[1\] is not UTF-8"):
            texts[1]
        with pytest.raises(ModelFileError, match="'k' holds text that is not UTF-8"):
            list(texts)
        assert file.metadata["t"] == "\ufffd\ufffd\ufffd!"


def test_alignment_counts_only_as_a_positive_uint32(tmp_path: Path) -> None:
    tensor = TensorData("t", TensorType.F32, (1,), bytes(4))
    path = tmp_path / "a.gguf"
    write_gguf(path, [("general.alignment", ValueType.UINT32, 128)], [tensor])
    with GgufFile.open(path) as file:
        assert file.alignment == 128
        assert file.tensors["t"].offset == 128
    header = encode_header([("general.alignmemt", ValueType.UINT64, 128)], [tensor])
    path.write_bytes(header.replace(b"alignmemt", b"alignment") + bytes(32))
    with GgufFile.open(path) as file:
        assert file.alignment == 32
    header = encode_header([("general.alignmemt", ValueType.UINT32, 0)], [tensor])
    path.write_bytes(header.replace(b"alignmemt", b"alignment") + bytes(32))
    with GgufFile.open(path) as file:
        assert file.alignment == 32


def test_an_unknown_tensor_type_is_only_noted(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    header = bytearray(encode_header([], [TensorData("strange", TensorType.F32, (8,), bytes(32))]))
    at = header.index(b"strange") + len("strange") + 4 + 8
    header[at : at + 4] = (77).to_bytes(4, "little")
    path.write_bytes(bytes(header) + bytes(32))
    with GgufFile.open(path) as file:
        assert file.notes == ["tensor 'strange' has the unknown type 77"]
        assert file.tensors["strange"].type is TensorType.UNKNOWN
        assert file.tensors["strange"].type_id == 77
        with pytest.raises(ValueError, match="unknown type 77"):
            file.data("strange")
