"""Writing files: round trips, what the `gguf` package makes of them, and what is left after a failure."""

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType, ValueType, block_bytes, block_elements
from shared.gguf.writer import ArrayValue, MetadataEntry, TensorData, encode_header, write_gguf

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
RANGES = {
    ValueType.UINT8: (0, 2**8 - 1),
    ValueType.INT8: (-(2**7), 2**7 - 1),
    ValueType.UINT16: (0, 2**16 - 1),
    ValueType.INT16: (-(2**15), 2**15 - 1),
    ValueType.UINT32: (0, 2**32 - 1),
    ValueType.INT32: (-(2**31), 2**31 - 1),
    ValueType.UINT64: (0, 2**64 - 1),
    ValueType.INT64: (-(2**63), 2**63 - 1),
}
SCALARS: dict[ValueType, st.SearchStrategy[object]] = {
    **{type: st.integers(low, high) for type, (low, high) in RANGES.items()},
    ValueType.FLOAT32: st.floats(width=32, allow_nan=False),
    ValueType.FLOAT64: st.floats(allow_nan=False),
    ValueType.BOOL: st.booleans(),
    ValueType.STRING: TEXT,
}


@st.composite
def arrays(draw: st.DrawFn, depth: int = 1) -> ArrayValue:
    element = draw(st.sampled_from([*SCALARS, *([ValueType.ARRAY] if depth < 4 else [])]))
    items = arrays(depth + 1) if element is ValueType.ARRAY else SCALARS[element]
    return ArrayValue(element, draw(st.lists(items, max_size=5)))


@st.composite
def entries(draw: st.DrawFn) -> list[MetadataEntry]:
    keys = draw(st.lists(TEXT.filter(lambda key: key != "general.alignment"), unique=True, max_size=6))
    result: list[MetadataEntry] = []
    for key in keys:
        value_type = draw(st.sampled_from(list(ValueType)))
        result.append((key, value_type, draw(SCALARS.get(value_type, arrays()))))
    return result


@st.composite
def tensors(draw: st.DrawFn) -> list[TensorData]:
    result = []
    for name in draw(st.lists(TEXT, unique=True, max_size=5)):
        kind = draw(st.sampled_from([type for type in TensorType if type is not TensorType.UNKNOWN]))
        rows = draw(st.lists(st.integers(1, 3), max_size=3))
        dims = (draw(st.integers(1, 2)) * block_elements(kind), *rows)
        size = int(np.prod(dims)) // block_elements(kind) * block_bytes(kind)
        result.append(TensorData(name, kind, dims, draw(st.binary(min_size=size, max_size=size))))
    return result


def plain(value: object) -> object:
    """A value as the reader gives it, in Python's own types."""
    if isinstance(value, (int, float, bool, str)):
        return value
    if isinstance(value, ArrayValue):
        return [plain(item) for item in value.items]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [plain(item) for item in value]  # type: ignore[attr-defined]


@settings(max_examples=120, deadline=None)
@given(entries(), tensors(), st.sampled_from([None, 1, 8, 32, 48, 4096]))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    metadata: list[MetadataEntry],
    data: list[TensorData],
    alignment: int | None,
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.gguf"
    if alignment is not None:
        metadata = [*metadata, ("general.alignment", ValueType.UINT32, alignment)]
    write_gguf(path, metadata, data)
    with GgufFile.open(path) as file:
        assert list(file.metadata) == [key for key, _, _ in metadata]
        for key, value_type, value in metadata:
            assert file.metadata_type(key) is value_type
            assert plain(file.metadata[key]) == plain(value)
            if isinstance(value, ArrayValue):
                assert file.element_type(key) is value.element
        assert [(info.name, info.type, info.dims) for info in file.tensors.values()] == [
            (tensor.name, tensor.type, tensor.dims) for tensor in data
        ]
        for tensor in data:
            assert file.tensors[tensor.name].offset % (alignment or 32) == 0
            assert file.data(tensor.name).tobytes() == tensor.data


def streamed() -> Iterator[bytes]:
    for part in range(4):
        yield bytes([part] * 17)


SAMPLE = [
    TensorData("array", TensorType.F32, (3, 2), np.arange(6, dtype=np.float32).reshape(2, 3)),
    TensorData("strided", TensorType.F16, (4,), np.arange(8, dtype=np.float16)[::2]),
    TensorData("bytes", TensorType.Q8_0, (32,), bytes(range(34))),
    TensorData("view", TensorType.I32, (2,), memoryview(struct.pack("<ii", -1, 7))),
    TensorData("iterator", TensorType.MXFP4, (64, 2), streamed()),
    TensorData("callable", TensorType.MXFP4, (64, 2), streamed),
    TensorData("experts", TensorType.Q2_K, (256, 2, 3), lambda: [bytes(84)] * 6),
]


def test_the_gguf_package_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    metadata: list[MetadataEntry] = [
        ("general.architecture", ValueType.STRING, "deepseek4"),
        ("general.alignment", ValueType.UINT32, 64),
        ("flag", ValueType.BOOL, True),
        ("wide", ValueType.UINT64, 2**50),
        ("texts", ValueType.ARRAY, ArrayValue(ValueType.STRING, ["｜", "", "two words"])),
        ("clamp", ValueType.ARRAY, ArrayValue(ValueType.FLOAT32, [10.0, 0.5])),
    ]
    write_gguf(path, metadata, SAMPLE)
    peer = gguf.GGUFReader(path)
    for key, value_type, value in metadata:
        field = peer.fields[key]
        assert field.types[0] == value_type
        assert field.contents() == (value.items if isinstance(value, ArrayValue) else value)
    found = {tensor.name: tensor for tensor in peer.tensors}
    assert list(found) == [tensor.name for tensor in SAMPLE]
    assert found["array"].data.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["strided"].data.tolist() == [0, 2, 4, 6]
    assert found["bytes"].data.tobytes() == bytes(range(34))
    assert found["view"].data.tolist() == [-1, 7]
    assert found["iterator"].data.tobytes() == b"".join(streamed())
    assert found["callable"].data.tobytes() == b"".join(streamed())
    assert found["experts"].data.shape == (3, 2, 84)
    assert all(tensor.data_offset % 64 == 0 for tensor in peer.tensors)


REFUSED: dict[str, tuple[list[MetadataEntry], list[TensorData], str]] = {
    "too few bytes": ([], [TensorData("t", TensorType.F32, (2,), bytes(7))], "8 bytes but was given only 7"),
    "too many bytes": ([], [TensorData("t", TensorType.F32, (2,), bytes(9))], "8 bytes but was given more"),
    "endless bytes": (
        [],
        [TensorData("t", TensorType.F32, (2,), itertools.repeat(bytes(5)))],
        "8 bytes but was given more",
    ),
    "tensor twice": ([], [TensorData("t", TensorType.F32, (1,), bytes(4))] * 2, "a tensor occurs twice"),
    "key twice": ([("k", ValueType.UINT8, 1)] * 2, [], "a metadata key occurs twice"),
    "out of range": ([("k", ValueType.UINT8, 256)], [], "256 is no UINT8"),
    "float overflow": ([("k", ValueType.FLOAT32, 1e39)], [], "is no FLOAT32"),
    "text as number": ([("k", ValueType.INT32, "1")], [], "is no INT32"),
    "number as text": ([("k", ValueType.STRING, 1)], [], "must be str"),
    "bare list": ([("k", ValueType.ARRAY, [1])], [], "must be given as ArrayValue"),
    "alignment 0": ([("general.alignment", ValueType.UINT32, 0)], [], "at least 1"),
    "partial block": ([], [TensorData("t", TensorType.Q8_0, (33,), b"")], "not a multiple of 32"),
    "no dimensions": ([], [TensorData("t", TensorType.F32, (), bytes(4))], "0 dimensions"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_file_leaves_nothing_and_keeps_the_old_one(tmp_path: Path, case: str) -> None:
    metadata, data, expected = REFUSED[case]
    path = tmp_path / "a.gguf"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match=expected):
        write_gguf(path, metadata, data)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_source_that_fails_leaves_nothing(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def failing() -> Iterator[bytes]:
        yield bytes(4)
        seen.append([path.name for path in tmp_path.iterdir()])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_gguf(tmp_path / "a.gguf", [], [TensorData("t", TensorType.F32, (2,), failing)])
    assert seen
    assert "a.gguf" not in seen[0]  # not under its name before it is complete
    assert list(tmp_path.iterdir()) == []


def test_the_data_are_on_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.gguf"
    existed: list[bool] = []
    monkeypatch.setattr("shared.gguf.writer.os.fsync", lambda descriptor: existed.append(path.exists()))
    write_gguf(path, [], [])
    assert existed == [False, True]  # the file, then the directory that names it


def test_header_and_padding_are_exact() -> None:
    data = encode_header([("k", ValueType.UINT8, 5)], [TensorData("t", TensorType.F16, (3, 1), b"")])
    expected = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    expected += struct.pack("<Q1sIB", 1, b"k", 0, 5)
    expected += struct.pack("<Q1sIQQIQ", 1, b"t", 2, 3, 1, 1, 0)
    assert data == expected + bytes(-len(expected) % 32)
