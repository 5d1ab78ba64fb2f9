"""Files of importances: the legacy layout, the three ways to find an expert, and damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shared.quantise import imatrix
from shared.quantise.imatrix import ImatrixError, imatrix_bytes, read_imatrix
from tests.support.tiny_checkpoints import write_imatrix

NAME = "blk.0.ffn_up_exps.weight"


def test_what_a_file_holds(tmp_path: Path) -> None:
    path = write_imatrix(tmp_path / "i.dat", {NAME: np.arange(6)}, "prose", 12)
    held = read_imatrix(path)
    assert (held.dataset, held.chunks) == ("prose", 12)
    assert held.entries[NAME].tolist() == [0, 1, 2, 3, 4, 5]
    other = write_imatrix(tmp_path / "j.dat", {NAME: np.arange(1, 7)}, "prose", 12)
    assert read_imatrix(other).digest != held.digest


def test_an_expert_is_found_by_itself_or_in_the_whole(tmp_path: Path) -> None:
    entries = {NAME: np.arange(6), f"{NAME}.expert.1": [7, 8], f"{NAME}.expert_2": [9, 10]}
    entries = {name: np.array(values) for name, values in entries.items()}
    held = read_imatrix(write_imatrix(tmp_path / "i.dat", entries))
    found = [held.of(NAME, expert, 2, 3) for expert in range(3)]
    assert [values.tolist() for values in found if values is not None] == [[0, 1], [7, 8], [9, 10]]
    held = read_imatrix(write_imatrix(tmp_path / "i.dat", {NAME: np.arange(6)}))
    found = [held.of(NAME, expert, 2, 3) for expert in range(3)]
    assert [values.tolist() for values in found if values is not None] == [[0, 1], [2, 3], [4, 5]]
    assert held.of("another", 0, 2, 3) is None
    with pytest.raises(ImatrixError, match=r"6 values for .*, expected 8"):
        held.of(NAME, 0, 2, 4)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_values_that_are_no_importances(tmp_path: Path, value: float) -> None:
    path = write_imatrix(tmp_path / "i.dat", {NAME: np.array([1.0, value])})
    with pytest.raises(ImatrixError, match="negative or not finite"):
        read_imatrix(path)


def test_every_cut_is_noticed_and_so_is_a_tail(tmp_path: Path) -> None:
    path = write_imatrix(tmp_path / "i.dat", {NAME: np.ones(3), "b": np.ones(1)})
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(ImatrixError, match="no file of importances, or damaged"):
            read_imatrix(path)
    path.write_bytes(content + b"x")
    with pytest.raises(ImatrixError, match="1 bytes follow its end"):
        read_imatrix(path)


@pytest.mark.parametrize("content", [b"\xff" * 40, b"\x01\0\0\0" + b"\xff\xff\xff\x7f" * 9, b"GGUF" * 20])
def test_other_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "i.dat").write_bytes(content)
    with pytest.raises(ImatrixError, match="no file of importances"):
        read_imatrix(tmp_path / "i.dat")


def test_a_name_that_occurs_twice_or_is_no_text(tmp_path: Path) -> None:
    path = write_imatrix(tmp_path / "i.dat", {"aa": np.ones(1), "ab": np.ones(1)})
    path.write_bytes(path.read_bytes().replace(b"ab", b"aa"))
    with pytest.raises(ImatrixError, match="'aa' occurs twice"):
        read_imatrix(path)
    path.write_bytes(path.read_bytes().replace(b"aa", b"\xff\xff"))
    with pytest.raises(ImatrixError, match="not UTF-8"):
        read_imatrix(path)


_VALUES = arrays.arrays(np.float32, st.integers(0, 9), elements=st.floats(0, 2.0**99, width=32))
_ENTRIES = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=12), _VALUES, max_size=5)


@settings(deadline=None, max_examples=40)
@given(_ENTRIES, st.text(st.characters(codec="utf-8"), max_size=12), st.integers(0, 2**31 - 1))
def test_what_is_written_is_read_and_written_the_same(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, np.ndarray], dataset: str, chunks: int
) -> None:
    first, second = (tmp_path_factory.getbasetemp() / name for name in ("first.dat", "second.dat"))
    imatrix.write_imatrix(first, entries.items(), len(entries), dataset=dataset, chunks=chunks)
    held = read_imatrix(first)
    assert (held.dataset, held.chunks, list(held.entries)) == (dataset, chunks, list(entries))
    for name, values in entries.items():
        np.testing.assert_array_equal(held.entries[name], values)
    imatrix.write_imatrix(
        second, held.entries.items(), len(entries), dataset=held.dataset, chunks=held.chunks
    )
    assert second.read_bytes() == first.read_bytes()
    sizes = [(name, values.size) for name, values in entries.items()]
    assert imatrix_bytes(sizes, dataset) == first.stat().st_size


def test_it_is_the_legacy_layout(tmp_path: Path) -> None:
    entries = {NAME: np.arange(6, dtype=np.float32), "b": np.ones(2, np.float32)}
    other = write_imatrix(tmp_path / "other.dat", entries, "prose", 12)
    imatrix.write_imatrix(tmp_path / "own.dat", entries.items(), 2, dataset="prose", chunks=12)
    assert (tmp_path / "own.dat").read_bytes() == other.read_bytes()


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_nothing_is_left_of_a_file_that_none_could_read(tmp_path: Path, value: float) -> None:
    (tmp_path / "i.dat").write_text("before")
    entries = [("a", np.ones(3, np.float32)), ("b", np.array([0, value], np.float32))]
    with pytest.raises(ImatrixError, match="importances of 'b' are negative or not finite"):
        imatrix.write_imatrix(tmp_path / "i.dat", entries, 2, dataset="prose", chunks=1)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("i.dat", "before")]


def test_a_dataset_whose_name_is_no_unicode_or_very_long(tmp_path: Path) -> None:
    for name, kept in (("a\udcff", "a?"), ("é" * 4000, "é" * 2048)):
        imatrix.write_imatrix(tmp_path / "i.dat", [], 0, dataset=name, chunks=0)
        assert read_imatrix(tmp_path / "i.dat").dataset == kept
