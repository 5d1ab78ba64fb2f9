"""What a load takes of the host, beside the mapped file: one amount of page-locked memory."""

from __future__ import annotations

import mmap
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from apps import cli
from ds4cuda import availability, engine, weights
from ds4cuda.device import Device
from ds4cuda.staging import Staging
from ds4cuda.weights import Matrix, WeightReader
from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType
from shared.model.open import open_model
from shared.quant.dequantise import dequantise
from tests.cuda.cupy_standin import CupyStandin
from tests.support.golden import model_path, tiny_q2

STAGING = 1 << 20


class SlowCopies(CupyStandin):
    """Memory of the device is nobody's on the host, and what is sent arrives when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way: list[Callable[[], None]] = []
        self.pinned = 0
        self.ndarray = self  # type: ignore[assignment]
        plain, this = self.cuda, self

        class Event:
            def __init__(self, *, disable_timing: bool) -> None:
                self._before = list(this.under_way)

            def record(self) -> None:
                self._before = list(this.under_way)

            def synchronize(self) -> None:
                this.arrive(self._before)

        def pinned(size: int) -> bytearray:
            self.pinned += size
            return bytearray(size)

        plain.Event = Event  # type: ignore[assignment, method-assign]
        plain.alloc_pinned_memory = pinned  # type: ignore[method-assign]

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        count = int(np.prod(shape, dtype=np.int64))
        memory = mmap.mmap(-1, max(1, count * np.dtype(dtype).itemsize))
        return np.frombuffer(memory, dtype, count).reshape(shape)

    def asarray(self, host: npt.NDArray[Any]) -> npt.NDArray[Any]:
        array = self.empty(host.shape, host.dtype)
        array[...] = host
        return array

    def set(self, to: npt.NDArray[Any], host: npt.NDArray[Any], stream: Any) -> None:
        self.under_way.append(lambda: np.copyto(to, host, casting="no"))

    def arrive(self, copies: list[Callable[[], None]]) -> None:
        for copy in copies:
            if copy in self.under_way:
                self.under_way.remove(copy)
                copy()


def reader_of(cupy: CupyStandin, file: GgufFile, name: str) -> WeightReader:
    with open_model(model_path(name)) as model:
        return WeightReader(Device(cupy), file, model.shape)


@pytest.mark.parametrize("name", ["tiny-q2", "tiny-q4"])
def test_a_load_allocates_one_amount_of_staging_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "STAGING_BYTES", STAGING)
    cupy, steps = SlowCopies(), []
    with GgufFile.open(model_path(name)) as file:
        with open_model(model_path(name)) as model:
            shape, device = model.shape, Device(cupy)
        tracemalloc.start()
        try:
            loaded = WeightReader(device, file, shape).read(lambda *of: steps.append(of))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert cupy.pinned == STAGING
        assert not cupy.under_way
        assert loaded.nbytes > 9_000_000
        # What is not staged: vectors, positional biases, and Python's own objects.
        assert STAGING <= peak < STAGING + 700_000
        assert steps == [(layer, 6) for layer in range(7)]
        check_contents(file, loaded)


def check_contents(file: GgufFile, loaded: weights.Weights) -> None:
    """Of every way in which a tensor is stored; the last pieces of all of them arrived."""
    layer = loaded.layers[-1]
    assert np.array_equal(layer.experts.down.reshape(-1), file.data("blk.5.ffn_down_exps.weight"))
    assert np.array_equal(loaded.embedding.reshape(-1), file.data("token_embd.weight").view("<u2"))
    stacked = [("blk.5.attn_q_a.weight", "blk.5.attn_kv.weight"), ("output.weight",)]
    for matrix, names in zip((layer.query_key_value_down, loaded.output), stacked, strict=True):
        rows = [dequantise(TensorType.Q8_0, file.data(name), file.tensors[name].dims[::-1]) for name in names]
        assert np.array_equal(expanded(matrix), np.concatenate(rows))
    assert loaded.layers[2].compressor is not None
    halves = loaded.layers[2].compressor.project
    assert np.array_equal(
        halves.weights[-16:].reshape(-1), file.data("blk.2.indexer.proj.weight").view("<u2")
    )


def expanded(matrix: Matrix) -> npt.NDArray[np.float32]:
    return matrix.weights * np.repeat(matrix.scales.view(np.float16).astype(np.float32), 32, axis=1)


def test_rows_longer_than_the_staging_memory_are_refused() -> None:
    staging, rows = Staging(Device(SlowCopies()), 100), np.zeros((2, 51), np.uint8)
    with pytest.raises(ValueError, match="51 bytes"):
        staging.fill(np.zeros((2, 51), np.uint8), rows, lambda rows: rows)


def test_pages_of_the_file_are_let_go_of() -> None:
    released: list[tuple[int, int]] = []

    class Watched(mmap.mmap):
        def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
            assert option == mmap.MADV_DONTNEED
            released.append((start, length))
            super().madvise(option, start, length)

    with GgufFile.open(tiny_q2()) as file, tiny_q2().open("rb") as opened:
        file._map = Watched(opened.fileno(), 0, access=mmap.ACCESS_READ)
        reader_of(CupyStandin(), file, "tiny-q2").read()
        large = sum(info.nbytes for info in file.tensors.values() if info.nbytes > 4 * mmap.PAGESIZE)
    assert sum(length for _, length in released) > 0.9 * large


def test_a_gpu_that_is_too_small_is_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cupy = CupyStandin()
    monkeypatch.setattr(cupy.cuda.runtime, "memGetInfo", lambda: (600 << 20, 32 << 30))
    monkeypatch.setattr(cupy, "empty", lambda *of: pytest.fail("memory was taken"))
    for module in (availability, engine):
        monkeypatch.setattr(module, "why_unavailable", lambda: None)
        monkeypatch.setattr(module, "open_cupy", lambda: cupy)
    arguments = ["chat", "-m", str(tiny_q2()), "--backend", "cuda", "--ctx", "1000000", "-p", "Hi"]
    assert cli.main(arguments) == 1
    assert "available: use --ctx" in capsys.readouterr().err
