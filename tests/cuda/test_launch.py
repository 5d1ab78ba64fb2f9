"""How kernels are compiled and launched, whatever they compute."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels.kernel import OPTIONS, PLAIN_SHARED_BYTES, Kernel, Launch, int32
from shared.model.known_shapes import FLASH
from tests.cuda.texts import kernel_texts

TURNS = """extern "C" __global__ void turns(const float* x, float* y, int last) {
    extern __shared__ float kept[];
    kept[last - threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = kept[threadIdx.x + last - 63];
}
"""


@pytest.mark.parametrize("extra", [0, 4, 1024])
def test_shared_memory_above_48_kib_is_asked_for(device: Device, extra: int, tmp_path: Path) -> None:
    """Also where exactly as much is wanted as a launch gets unasked."""
    source = tmp_path / "turns.cu"
    source.write_text(TURNS)
    launch, size = Kernel("turns", source).specialise(device), PLAIN_SHARED_BYTES + extra
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    for _ in range(2):
        launch((1,), 64, x, y, int32(size // 4 - 1), shared_bytes=size)
        assert y.tolist() == x[::-1].tolist()


class Asked:
    """A compiled kernel that notes what is asked of it."""

    def __init__(self) -> None:
        self.limits: list[int] = []
        self.launches: list[tuple[Any, ...]] = []

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "max_dynamic_shared_size_bytes":
            self.limits.append(value)
        else:
            super().__setattr__(name, value)

    def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int) -> None:
        self.launches.append((grid, block, arguments, shared_mem))


def test_more_shared_memory_is_asked_for_once() -> None:
    asked = Asked()
    launch = Launch(asked, "some")
    for size in (0, PLAIN_SHARED_BYTES, 50_000, 50_000, 49_500, 60_000):
        launch((2, 1), 32, int32(1), shared_bytes=size)
    assert asked.limits == [50_000, 60_000]
    assert [launched[3] for launched in asked.launches] == [
        0,
        PLAIN_SHARED_BYTES,
        50_000,
        50_000,
        49_500,
        60_000,
    ]
    assert asked.launches[0][:2] == ((2, 1), (32,))


@pytest.mark.parametrize("number", [7, 0.5, True, None])
def test_numbers_without_a_type_are_refused(number: Any) -> None:
    asked = Asked()
    with pytest.raises(TypeError, match=f"some: argument 1 is a {type(number).__name__}"):
        Launch(asked, "some")((1,), 32, np.zeros(3), number)
    assert asked.launches == []
    with pytest.raises(OverflowError):
        int32(1 << 31)


def test_each_text_is_compiled_once_and_by_itself() -> None:
    compiled: list[str] = []

    def compile_text(*, code: str, options: tuple[str, ...]) -> Any:
        compiled.append(code)
        return SimpleNamespace(get_function=lambda name: (code, name, options))

    stream = SimpleNamespace(use=lambda: None)
    cuda = SimpleNamespace(Stream=lambda **settings: stream)
    device = Device(SimpleNamespace(cuda=cuda, RawModule=compile_text))
    for constant in (1, 2, 1):
        assert device.function(f"text {constant}", "some", OPTIONS)[0] == f"text {constant}"
    assert compiled == ["text 1", "text 2"]


def test_texts_are_whole() -> None:
    """No header of a system or a toolkit is needed, and a header that changes makes another text: compiled
    kernels are kept under the architecture, the options and the text."""
    texts = kernel_texts(FLASH, (True,))
    assert len(texts) > 30
    assert [name for text, (name, _) in texts.items() if "#include" in text] == []
    assert all("I" not in option for _, options in texts.values() for option in options)
