"""Tensors' bytes as MLX arrays: in place where memory can be shared, else copied. Sharing is played here by
an importer that takes the imported words over into memory of MLX's own."""

from __future__ import annotations

import gc
import mmap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shared.gguf.reader import GgufFile
from shared.gguf.writer import TensorData, encode_header
from tests.support.golden import model_path, tiny_q2

mx = pytest.importorskip("mlx.core")

from ds4mlx.adoption import TensorBytes, touch_pages  # noqa: E402
from ds4mlx.experts import RawExperts  # noqa: E402
from ds4mlx.plan import Storage  # noqa: E402
from ds4mlx.weights import WeightReader  # noqa: E402
from shared.gguf.types import TensorType  # noqa: E402
from shared.model.open import open_model  # noqa: E402

PAGE = mmap.PAGESIZE


def refuse(words: Any) -> mx.array:
    raise ValueError("no shared memory")


@dataclass
class Sharing:
    """An importer, and what it was given and gave."""

    words: list[npt.NDArray[Any]] = field(default_factory=list)
    arrays: list[mx.array] = field(default_factory=list)

    def __call__(self, words: npt.NDArray[Any]) -> mx.array:
        array = mx.array(words)
        mx.eval(array)
        self.words.append(words)
        self.arrays.append(array)
        return array


def address(array: mx.array) -> int:
    return int(np.array(array, copy=False).ctypes.data)


def test_adopted_tensors_hold_the_files_bytes_in_whole_pages() -> None:
    with GgufFile.open(tiny_q2()) as gguf:
        sharing = Sharing()
        notes: list[str] = []
        source = TensorBytes(gguf, adopt=True, notes=notes, import_words=sharing)
        for name, info in gguf.tensors.items():
            rows = source.rows(name, (2, info.nbytes // 2))
            assert rows.dtype == mx.uint8
            assert np.array_equal(np.array(rows).reshape(-1), gguf.data(name)), name
        assert notes == []
        # One view a tensor, also of the one that ends in the file's last, incomplete page.
        assert len(sharing.words) == len(gguf.tensors)
        last = max(gguf.tensors.values(), key=lambda info: info.offset)
        assert -(-(last.offset + last.nbytes) // PAGE) * PAGE > gguf.size
    for words in sharing.words:
        assert words.ctypes.data % PAGE == 0
        assert words.nbytes % PAGE == 0
        assert words.ndim == 1
        assert not words.flags.writeable


def test_nothing_is_copied_on_the_way_to_a_kernel() -> None:
    """Kernels of MLX copy inputs that are not row contiguous: for experts that would be gigabytes."""
    with open_model(tiny_q2()) as model:
        sharing = Sharing()
        source = TensorBytes(model.gguf, adopt=True, notes=[], import_words=sharing)
        storage = Storage.for_gpu(model.shape)
        weights = WeightReader(model.gguf, model.shape, source, storage).read()
        adopted = iter(sharing.arrays)
        for index, layer in enumerate(weights.layers):
            assert isinstance(layer.experts, RawExperts)
            for part in ("gate", "up", "down"):
                array, shared = getattr(layer.experts, part), next(adopted)
                offset = model.gguf.tensors[f"blk.{index}.ffn_{part}_exps.weight"].offset
                assert address(array) == address(shared) + offset % PAGE
                _, outputs, row_bytes = array.shape
                view = memoryview(array)
                assert view.c_contiguous
                assert view.strides == (outputs * row_bytes, row_bytes, 1)
                # MLX hands the same memory on only if its own flag says that rows are contiguous.
                same = mx.contiguous(array)
                mx.eval(same)
                assert address(same) == address(array)
        assert next(adopted, None) is None


def test_a_tensor_of_more_than_two_gigabytes_is_one_view(tmp_path: Path) -> None:
    """As the experts of PRO are; nothing of its size is computed or held."""
    experts, outputs, inputs = 384, 3072, 7168
    tensor = TensorData("experts", TensorType.IQ2_XXS, (inputs, outputs, experts), b"")
    path = tmp_path / "large.gguf"
    header = encode_header([], [tensor])
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + tensor.nbytes)
    row_bytes = inputs // 256 * 66
    with GgufFile.open(path) as gguf:
        assert gguf.tensors["experts"].nbytes > 2**31
        notes: list[str] = []
        imported: list[tuple[int, ...]] = []

        def share(words: npt.NDArray[Any]) -> mx.array:
            imported.append(words.shape)
            return mx.broadcast_to(mx.array(0, mx.uint64), words.shape)

        source = TensorBytes(gguf, adopt=True, notes=notes, touch=False, import_words=share)
        rows = source.rows("experts", (experts, outputs, row_bytes))
    assert notes == []
    assert rows.shape == (experts, outputs, row_bytes)
    assert len(imported) == 1
    assert imported[0][0] < 2**31


def test_a_view_makes_no_array_but_itself() -> None:
    """MLX makes the input of a strided view one axis first, which neither fits 32 bits nor is free."""
    with GgufFile.open(tiny_q2()) as gguf:
        name, sharing = "blk.0.ffn_down_exps.weight", Sharing()
        shape = (8, 2, gguf.tensors[name].nbytes // 16)
        TensorBytes(gguf, adopt=True, notes=[], import_words=sharing).rows(name, shape)
        found: list[str] = []

        def collect(entry: dict[str, Any]) -> None:
            if entry.get("type") == "primitive":
                found.append(entry["name"])

        def view(words: mx.array) -> mx.array:
            return TensorBytes(gguf, adopt=True, notes=[], import_words=lambda _: words).rows(name, shape)

        mx.export_function(collect, view, sharing.arrays[0])
    assert found == ["AsStrided", "View"]


def test_the_file_is_shared_read_only_and_stays_mapped() -> None:
    """A private map that the GPU may write to becomes a second copy of the file on a Mac."""
    gguf = GgufFile.open(tiny_q2())
    sharing = Sharing()
    name = "blk.0.ffn_down_exps.weight"
    TensorBytes(gguf, adopt=True, notes=[], import_words=sharing).rows(name, (1, gguf.tensors[name].nbytes))
    expected = np.array(sharing.words[0])
    gguf.close()
    del gguf
    gc.collect()
    assert np.array_equal(sharing.words[0], expected)
    maps = Path("/proc/self/maps")
    if maps.exists():
        at = sharing.words[0].ctypes.data
        (modes,) = [line.split()[1] for line in maps.read_text().splitlines() if _spans(line, at)]
        assert modes == "r--s"


def _spans(line: str, at: int) -> bool:
    first, end = (int(part, 16) for part in line.split(maxsplit=1)[0].split("-"))
    return first <= at < end


def test_a_platform_that_cannot_share_copies_with_one_note() -> None:
    with GgufFile.open(tiny_q2()) as gguf:
        notes: list[str] = []
        source = TensorBytes(gguf, adopt=True, notes=notes, import_words=refuse)
        for name in ("blk.0.ffn_down_exps.weight", "blk.1.ffn_down_exps.weight"):
            rows = source.rows(name, (8, gguf.tensors[name].nbytes // 8))
            assert np.array_equal(np.array(rows).reshape(-1), gguf.data(name))
        assert notes == [
            "copying weights that cannot be mapped (blk.0.ffn_down_exps.weight: no shared memory)"
        ]


def test_only_the_tensors_that_cannot_be_shared_are_copied() -> None:
    names = [f"blk.{layer}.ffn_down_exps.weight" for layer in range(3)]
    with GgufFile.open(tiny_q2()) as gguf:
        sharing = Sharing()
        notes: list[str] = []
        asked: list[tuple[int, ...]] = []

        def share_all_but_the_second(words: npt.NDArray[Any]) -> mx.array:
            asked.append(words.shape)
            if len(asked) == 2:
                raise OverflowError("too large")
            return sharing(words)

        source = TensorBytes(gguf, adopt=True, notes=notes, import_words=share_all_but_the_second)
        for name in names:
            rows = source.rows(name, (8, gguf.tensors[name].nbytes // 8))
            assert np.array_equal(np.array(rows).reshape(-1), gguf.data(name))
    assert (len(asked), len(sharing.words)) == (3, 2)
    assert notes == [f"copying weights that cannot be mapped ({names[1]}: too large)"]


def test_this_machine_says_so_where_it_cannot_share(monkeypatch: pytest.MonkeyPatch) -> None:
    if mx.metal.is_available():

        def refuse(words: npt.NDArray[Any], *, copy: bool) -> mx.array:
            raise ValueError("Cannot import a CPU array without a copy.")  # MLX's words where it has no Metal

        monkeypatch.setattr(mx, "from_dlpack", refuse)
    with GgufFile.open(tiny_q2()) as gguf:
        notes: list[str] = []
        TensorBytes(gguf, adopt=True, notes=notes).rows("output_norm.weight", (1024,))
    assert len(notes) == 1
    assert "without a copy" in notes[0]


def test_copying_asks_nobody() -> None:
    with GgufFile.open(tiny_q2()) as gguf:
        source = TensorBytes(gguf, adopt=False, notes=[], import_words=lambda words: pytest.fail("asked"))
        assert source.rows("output_norm.weight", (1024,)).shape == (1024,)


@pytest.mark.parametrize(("inner", "size"), [(0, 1), (0, PAGE), (0, PAGE + 1), (32, PAGE - 32), (32, PAGE)])
def test_each_page_is_touched_once(inner: int, size: int) -> None:
    """The first byte of what lies on each page, whatever else is there."""
    with mmap.mmap(-1, 4 * PAGE) as memory:
        pages = np.frombuffer(memory, np.uint8)
        pages[inner] = 1
        pages[PAGE::PAGE] = 1
        expected = -(-(inner + size) // PAGE)
        assert touch_pages(pages[inner : inner + size]) == expected
        del pages


@pytest.mark.parametrize(("touch", "adopt", "touched"), [(True, True, 3), (False, True, 0), (True, False, 0)])
def test_adopted_bytes_are_read_while_loading(
    touch: bool, adopt: bool, touched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr("ds4mlx.adoption.touch_pages", lambda data: seen.append(data.ctypes.data))
    with GgufFile.open(model_path("tiny-q2")) as gguf:
        source = TensorBytes(gguf, adopt=adopt, notes=[], touch=touch, import_words=Sharing())
        names = [f"blk.{layer}.ffn_down_exps.weight" for layer in range(3)]
        for name in names:
            source.rows(name, (8, gguf.tensors[name].nbytes // 8))
        assert seen == [gguf.data(name).ctypes.data for name in names][:touched]
