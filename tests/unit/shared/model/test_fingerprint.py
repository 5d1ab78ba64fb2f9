"""Which weights a file holds: the same for every way to open it, another for every other file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType
from shared.gguf.writer import TensorData, write_gguf
from shared.model.fingerprint import SAMPLE_BYTES, fingerprint
from shared.model.open import open_model
from shared.model.reference_engine import load
from tests.support.golden import tiny_pro, tiny_q2
from tests.support.scripted import scripted


def of(path: Path) -> str:
    with GgufFile.open(path) as gguf:
        return fingerprint(gguf)


def changed(path: Path, offset: int) -> str:
    """The fingerprint with one byte changed."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
    return of(path)


def test_every_engine_of_a_file_says_the_same() -> None:
    engine = load(tiny_q2())
    try:
        assert engine.fingerprint == of(tiny_q2())
        assert len(engine.fingerprint) == 64
    finally:
        engine.close()
    assert of(tiny_pro()) != of(tiny_q2())


def test_the_mlx_engine_says_the_same() -> None:
    pytest.importorskip("mlx.core")
    from ds4mlx.engine import load as load_mlx

    engine = load_mlx(tiny_q2())
    try:
        assert engine.fingerprint == of(tiny_q2())
    finally:
        engine.close()


def test_a_copy_is_the_same_model_and_its_name_means_nothing(tmp_path: Path) -> None:
    copy = tmp_path / "other-name.gguf"
    shutil.copyfile(tiny_q2(), copy)
    assert of(copy) == of(tiny_q2())


def test_each_tensor_counts(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    shutil.copyfile(tiny_q2(), path)
    with GgufFile.open(path) as gguf:
        before, tensors = fingerprint(gguf), list(gguf.tensors.values())
    seen = {before}
    for info in tensors:
        seen.add(changed(path, info.offset + info.nbytes // 2))
    assert len(seen) == 1 + len(tensors)


def test_metadata_and_size_count(tmp_path: Path) -> None:
    shutil.copyfile(tiny_q2(), path := tmp_path / "model.gguf")
    before = of(path)
    with open_model(path) as model:
        offset = path.read_bytes().index(model.name.encode())
    renamed = changed(path, offset)
    with path.open("ab") as file:
        file.write(b"\0")
    assert len({before, renamed, of(path)}) == 3


def test_small_and_large_tensors_are_read_within_their_bounds(tmp_path: Path) -> None:
    sizes = (1, SAMPLE_BYTES // 4, SAMPLE_BYTES)  # floats: 4 bytes to four samples
    for size in sizes:
        data = bytes(4 * size)
        path = tmp_path / f"{size}.gguf"
        write_gguf(path, [], [TensorData("t", TensorType.F32, (size,), data)])
        with GgufFile.open(path) as gguf:
            middle = gguf.tensors["t"].offset + len(data) // 2
        assert of(path) != changed(path, middle)


def test_a_scripted_engine_is_who_its_script_says_it_is() -> None:
    one, other = scripted(["a"]), scripted(["something else"])
    named = scripted(["a"], engine={"name": "another"})
    assert one.fingerprint == other.fingerprint != named.fingerprint
