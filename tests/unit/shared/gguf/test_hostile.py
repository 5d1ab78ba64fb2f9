"""Files that are damaged, hostile, or no GGUF files at all: one clear line each, and bounded memory."""

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import ModelFileError
from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType, ValueType
from shared.gguf.writer import ArrayValue, TensorData, encode_header
from tests.support.golden import GOLDEN

SMALL = encode_header(
    [
        ("general.architecture", ValueType.STRING, "deepseek4"),
        ("number", ValueType.FLOAT64, 1.5),
        ("flag", ValueType.BOOL, True),
        ("texts", ValueType.ARRAY, ArrayValue(ValueType.STRING, ["one", "two"])),
        ("ratios", ValueType.ARRAY, ArrayValue(ValueType.INT32, [0, 4, 128])),
        (
            "nested",
            ValueType.ARRAY,
            ArrayValue(ValueType.ARRAY, [ArrayValue(ValueType.UINT8, [1, 2])]),
        ),
    ],
    [
        TensorData("first", TensorType.Q8_0, (32, 2), b""),
        TensorData("second", TensorType.F32, (3,), b""),
    ],
) + bytes(96 + 12)


def refused(path: Path, data: bytes) -> ModelFileError:
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as caught:
        GgufFile.open(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    assert caught.value.problems
    return caught.value


def test_the_file_that_the_others_are_made_of_is_good(tmp_path: Path) -> None:
    path = tmp_path / "good.gguf"
    path.write_bytes(SMALL)
    with GgufFile.open(path) as file:
        assert file.data("second").nbytes == 12


def test_cut_off_anywhere(tmp_path: Path) -> None:
    for length in range(len(SMALL)):
        error = refused(tmp_path / "cut.gguf", SMALL[:length])
        assert any(word in str(error) for word in ("ends", "empty", "cut off", "not a GGUF", "announces")), (
            str(error)
        )


def test_a_golden_file_cut_off_in_header_and_data(tmp_path: Path) -> None:
    whole = (GOLDEN / "tokenizer-only.gguf").read_bytes()
    for length in (*range(24, 400), *range(1000, len(whole), 997), len(whole) - 33):
        refused(tmp_path / "cut.gguf", whole[:length])


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(SMALL) - 97), st.binary(min_size=1, max_size=9))
def test_overwritten_bytes_never_escape_as_anything_else(
    tmp_path_factory: pytest.TempPathFactory, at: int, patch: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "patched.gguf"
    path.write_bytes(SMALL[:at] + patch + SMALL[at + len(patch) :])
    try:
        file = GgufFile.open(path)
    except ModelFileError as error:
        message = str(error)
    else:
        message = ""
        for info in file.tensors.values():
            assert info.offset + info.nbytes <= file.size
        file.close()
    assert "\n" not in message


def header(keys: bytes, key_count: int = 1, tensors: bytes = b"", tensor_count: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensor_count, key_count) + keys + tensors + bytes(64)


def key(name: str, value_type: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", value_type) + value


def tensor(name: str, dims: tuple[int, ...], type_id: int, offset: int) -> bytes:
    head = struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return head + struct.pack("<IQ", type_id, offset)


def deep(levels: int) -> bytes:
    """An array value whose innermost array, `levels` deep, holds one byte."""
    head = struct.pack("<IQ", ValueType.ARRAY, 1) * (levels - 1)
    return head + struct.pack("<IQB", ValueType.UINT8, 1, 7)


HUGE = (2**60, 2**63, 2**64 - 1)
ABSURD = {
    **{f"keys {n}": (header(b"", key_count=n), "metadata entries") for n in HUGE},
    **{f"tensors {n}": (header(b"", 0, tensor_count=n), "tensors") for n in HUGE},
    "many keys": (header(b"", key_count=70000) + bytes(70000 * 13), "metadata entries"),
    **{f"key length {n}": (header(struct.pack("<Q", n)), "absurd length") for n in HUGE},
    **{f"string {n}": (header(key("k", 8, struct.pack("<Q", n))), "ends inside") for n in HUGE},
    **{f"array {n}": (header(key("k", 9, struct.pack("<IQ", 6, n))), "ends inside") for n in HUGE},
    **{f"strings {n}": (header(key("k", 9, struct.pack("<IQ", 8, n))), "ends inside") for n in HUGE},
    **{f"arrays {n}": (header(key("k", 9, struct.pack("<IQ", 9, n))), "ends inside") for n in HUGE},
    **{
        f"text in array {n}": (header(key("k", 9, struct.pack("<IQQ", 8, 1, n))), "ends inside") for n in HUGE
    },
    "value type": (header(key("k", 13, bytes(8))), "unknown value type 13"),
    "element type": (header(key("k", 9, struct.pack("<IQ", 99, 1))), "unknown value type 99"),
    "nested 9 deep": (header(key("k", 9, deep(9))), "more than 8 deep"),
    "nested 5,000 deep": (header(key("k", 9, deep(5000))), "more than 8 deep"),
    "bool 2": (header(key("k", 7, b"\x02")), "must be 0 or 1"),
    "bools 2": (header(key("k", 9, struct.pack("<IQB", 7, 1, 2))), "other than 0 and 1"),
    "key not UTF-8": (header(struct.pack("<Q", 2) + b"\xff\xff" + bytes(16)), "not UTF-8"),
    "key twice": (header(key("k", 0, b"\x01") * 2, 2), "'k' occurs twice"),
    "no dimensions": (header(b"", 0, tensor("t", (), 0, 0), 1), "0 dimensions"),
    "9 dimensions": (header(b"", 0, tensor("t", (1,) * 9, 0, 0), 1), "9 dimensions"),
    "2^32 - 1 dimensions": (
        header(b"", 0, struct.pack("<Q", 1) + b"t" + struct.pack("<I", 2**32 - 1), 1),
        "4294967295 dimensions",
    ),
    "empty dimension": (header(b"", 0, tensor("t", (4, 0), 0, 0), 1), "empty dimension"),
    "element overflow": (header(b"", 0, tensor("t", (2**40, 2**40), 0, 0), 1), "absurd size"),
    "element overflow of an unknown type": (header(b"", 0, tensor("t", (2**63,), 99, 0), 1), "absurd size"),
    "offset 2^60": (header(b"", 0, tensor("t", (8,), 0, 2**60), 1), "past its end"),
    "partial block": (header(b"", 0, tensor("t", (33,), 8, 0), 1), "not a multiple of 32"),
    "offset past the end": (header(b"", 0, tensor("t", (1,), 0, 4096), 1), "1 of its 1 tensors"),
    "offset 2^64 - 32": (header(b"", 0, tensor("t", (1,), 0, 2**64 - 32), 1), "1 of its 1 tensors"),
    "size past the end": (header(b"", 0, tensor("t", (2**50,), 0, 0), 1), "1 of its 1 tensors"),
    "misaligned": (header(b"", 0, tensor("t", (1,), 0, 4), 1), "not a multiple of the alignment 32"),
    "two of one name": (
        header(b"", 0, tensor("t", (1,), 0, 0) + tensor("t", (1,), 0, 32), 2),
        "two tensors have the name 't'",
    ),
    "overlap": (
        header(b"", 0, tensor("a", (9,), 0, 0) + tensor("b", (1,), 0, 32), 2),
        "'a' and 'b' overlap",
    ),
    "same place": (
        header(b"", 0, tensor("a", (1,), 0, 0) + tensor("b", (1,), 0, 0), 2),
        "'a' and 'b' overlap",
    ),
}


@pytest.mark.parametrize("case", ABSURD)
def test_absurd_headers(tmp_path: Path, case: str) -> None:
    data, expected = ABSURD[case]
    path = tmp_path / "absurd.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        error = refused(path, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert expected in str(error)
    assert peak < 1_000_000 + 2 * len(data)


def test_eight_levels_of_nesting_are_read(tmp_path: Path) -> None:
    path = tmp_path / "deep.gguf"
    path.write_bytes(header(key("k", 9, deep(8))))
    with GgufFile.open(path) as file:
        value = file.metadata["k"]
        for _ in range(7):
            (value,) = value  # type: ignore[misc, union-attr]
        assert value.tolist() == [7]  # type: ignore[union-attr]


def test_a_header_in_a_huge_hole_is_bounded(tmp_path: Path) -> None:
    """A sparse file of zeros has room for any number of empty strings; the header limit stops at 64 MiB."""
    path = tmp_path / "hole.gguf"
    path.write_bytes(header(key("k", 9, struct.pack("<IQ", 8, 2**34))))
    os.truncate(path, 2**40)
    with pytest.raises(ModelFileError, match="64 MiB that a header may take"):
        GgufFile.open(path)
    path.write_bytes(header(key("k", 9, struct.pack("<IQ", 9, 100_000))))
    os.truncate(path, 2**40)
    with pytest.raises(ModelFileError, match="nests more than 65536 arrays"):
        GgufFile.open(path)


def test_all_faults_are_listed(tmp_path: Path) -> None:
    tensors = (
        tensor("empty", (0,), 0, 0)
        + tensor("crooked", (1,), 0, 4)
        + tensor("far", (1,), 0, 4096)
        + tensor("far", (1,), 0, 8192)
    )
    error = refused(tmp_path / "bad.gguf", header(key("k", 7, b"\x05"), 1, tensors, 4))
    for word in ("bool", "empty dimension", "'crooked' starts", "two tensors", "2 of its 4", "'far' end at"):
        assert any(word in problem for problem in error.problems), word
    assert str(error).endswith(f"(and {len(error.problems) - 1} more problems)")


def test_names_from_the_file_stay_on_one_line(tmp_path: Path) -> None:
    name = "evil\n\x1b[31m" + "x" * 5000
    error = refused(tmp_path / "evil.gguf", header(b"", 0, tensor(name, (0,), 0, 0), 1))
    assert "evil\\n\\x1b" in str(error)
    assert len(str(error)) < 500


NOT_GGUF = {
    "pointer.gguf": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "Git LFS pointer",
    ),
    "page.gguf": (b"<!DOCTYPE html><html></html>" + bytes(32), "web page"),
    "model.pt": (b"PK\x03\x04" + bytes(60), "zip archive"),
    "model.gguf.gz": (b"\x1f\x8b\x08" + bytes(60), "gzip"),
    "old.bin": (b"tjgg" + bytes(60), "GGJT"),
    "big.gguf": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(8), "big-endian"),
    "two.gguf": (b"GGUF" + struct.pack("<IQQ", 2, 0, 0) + bytes(8), "version 2"),
    "four.gguf": (b"GGUF" + struct.pack("<IQQ", 4, 0, 0) + bytes(8), "version 4"),
    "short.gguf": (b"GGUF\x03\x00\x00\x00", "after 8 bytes"),
    "empty.gguf": (b"", "is empty"),
    "text.gguf": (b"hello, this is not a model", "not a GGUF file (it starts with 68 65 6c 6c)"),
    "model.safetensors": (struct.pack("<Q", 40) + b'{"a":{}}' + bytes(40), "safetensors"),
    "model.gguf.part": (SMALL, "unfinished download"),
}


@pytest.mark.parametrize("name", NOT_GGUF)
def test_what_is_not_a_gguf_file(tmp_path: Path, name: str) -> None:
    data, expected = NOT_GGUF[name]
    assert expected in str(refused(tmp_path / name, data))


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    def message(path: Path | str) -> str:
        with pytest.raises(ModelFileError) as caught:
            GgufFile.open(path)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "is a directory" in message(tmp_path)
    assert "there is no model file" in message(tmp_path / "none.gguf")
    assert "cannot read" in message("a\0b")
    (tmp_path / "half.gguf.part").write_bytes(b"GGUF")
    assert "not downloaded completely" in message(tmp_path / "half.gguf")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in message(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "cannot read" in message(tmp_path / "loop")


def test_permission_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shared.gguf.mapping.os.stat", refuse)
    with pytest.raises(ModelFileError, match="permission denied"):
        GgufFile.open(tmp_path / "secret.gguf")
