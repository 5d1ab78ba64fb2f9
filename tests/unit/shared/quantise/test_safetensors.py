"""Reading checkpoints: bytes of tensors, and one clear line for everything that is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shared.quantise.safetensors import INDEX, Checkpoint, CheckpointError
from tests.support.tiny_checkpoints import write_safetensors

TENSORS = {
    "a.weight": ("F32", np.arange(6, dtype="<f4"), (2, 3)),
    "b": ("I8", np.arange(8, dtype=np.int8), (8,)),
    "none": ("F32", np.zeros(0, "<f4"), (0, 4)),
}


def header_of(path: Path) -> tuple[dict, bytes]:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def rewrite(path: Path, header: object, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_safetensors(tmp_path / "model.safetensors", TENSORS)
    return tmp_path / "model.safetensors"


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(folder).close()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_tensors_and_their_bytes(file: Path) -> None:
    with Checkpoint.open(file.parent) as checkpoint:
        assert set(checkpoint.tensors) == set(TENSORS)
        a = checkpoint.tensors["a.weight"]
        assert (a.dtype, a.shape, a.nbytes) == ("F32", (2, 3), 24)
        assert checkpoint.read(a, 0, 24).view("<f4").tolist() == [0, 1, 2, 3, 4, 5]
        assert checkpoint.read(a, 8, 4).view("<f4").tolist() == [2]
        b = checkpoint.tensors["b"]
        assert checkpoint.read(b, 3, 5).tolist() == [3, 4, 5, 6, 7]


def test_a_file_that_shrinks_while_it_is_read(file: Path) -> None:
    with Checkpoint.open(file.parent) as checkpoint:
        file.write_bytes(file.read_bytes()[:-4])
        with pytest.raises(CheckpointError, match="became shorter"):
            checkpoint.read(checkpoint.tensors["b"], 0, 8)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda header: header["b"].update(dtype="F3"), "unknown type 'F3'"),
        (lambda header: header["b"].update(shape=[9]), "8 bytes do not hold I8 [9]"),
        (lambda header: header["b"].update(shape=[-8]), "not whole numbers"),
        (lambda header: header["b"].update(shape=[True]), "not whole numbers"),
        (lambda header: header["b"].update(data_offsets=[24]), "not whole numbers"),
        (lambda header: header["b"].update(data_offsets=[20, 28]), "overlaps another or leaves a gap"),
        (lambda header: header["b"].update(data_offsets=[26, 34]), "overlaps another or leaves a gap"),
        (lambda header: header["b"].update(dtype="F4", shape=[3]), "do not hold F4"),
        (lambda header: header.pop("b"), "bytes that belong to no tensor"),
        (lambda header: header.update(c=[1]), "not described by an object"),
    ],
)
def test_headers_that_contradict_the_file(file: Path, change, reason: str) -> None:
    header, data = header_of(file)
    header.pop("none")
    change(header)
    rewrite(file, header, data)
    assert reason in refusal(file.parent)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"{", "is damaged"),
        (b"[]", "it holds no object"),
        (b'{"a": {}, "a": {}}', "a name occurs twice"),
        (b"[" * 200000, "is damaged"),
        (b"\xff\xfe", "is damaged"),
    ],
)
def test_headers_that_are_no_json_object(file: Path, header: bytes, reason: str) -> None:
    rewrite(file, header, b"")
    assert reason in refusal(file.parent)


@pytest.mark.parametrize("size", [0, 5, 8, 40])
def test_files_that_are_cut_off_in_the_header(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])
    assert "cut off inside its header" in refusal(file.parent)


def test_a_file_that_is_cut_off_in_the_data(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])
    assert "is cut off (finish the download)" in refusal(file.parent)


def test_folders_that_hold_no_checkpoint(tmp_path: Path) -> None:
    assert "is no folder" in refusal(tmp_path / "absent")
    assert "holds no safetensors files" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ({"weight_map": {"b": "model.safetensors", "x": "other.safetensors"}}, "1 of the 2 files"),
        ({"weight_map": {"b": "../model.safetensors"}}, "not a plain file name"),
        ({"weight_map": {"b": 3}}, "no weight_map"),
        ({"weight_map": {}}, "lists no files"),
        ([], "it holds no object"),
    ],
)
def test_wrong_indices(file: Path, index: object, reason: str) -> None:
    (file.parent / INDEX).write_text(json.dumps(index))
    assert reason in refusal(file.parent)


def test_a_tensor_in_two_files(file: Path) -> None:
    write_safetensors(file.parent / "second.safetensors", {"b": TENSORS["b"]})
    assert "tensor 'b' is in model.safetensors and in second.safetensors" in refusal(file.parent)


def test_only_files_of_the_index_count(file: Path) -> None:
    write_safetensors(file.parent / "old.safetensors", {"b": TENSORS["b"]})
    (file.parent / INDEX).write_text(json.dumps({"weight_map": {"b": "model.safetensors"}}))
    with Checkpoint.open(file.parent) as checkpoint:
        assert {tensor.path.name for tensor in checkpoint.tensors.values()} == {"model.safetensors"}
