"""What is missing is said in one line, with what would help."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ds4cuda.availability import device_name, free_memory, why_unavailable
from ds4cuda.engine import load
from shared.errors import BackendUnavailable
from tests.support.golden import tiny_q2


class Machine:
    """Imports as on a machine with this driver (CUDA's version number), GPUs and compiler."""

    def __init__(
        self, driver: int | str = 12090, devices: int = 1, compute: str = "90", **missing: Exception
    ) -> None:
        self._missing = missing

        def version() -> int:
            if isinstance(driver, str):
                raise RuntimeError(driver)
            return driver

        properties = {"name": b"NVIDIA H200", "totalGlobalMem": 139 << 30}
        runtime = SimpleNamespace(
            driverGetVersion=version,
            getDeviceCount=lambda: devices,
            getDeviceProperties=lambda number: properties,
            memGetInfo=lambda: (100 << 30, 139 << 30),
        )
        self.cupy = SimpleNamespace(
            cuda=SimpleNamespace(runtime=runtime, Device=lambda: SimpleNamespace(compute_capability=compute))
        )

    def __call__(self, name: str) -> Any:
        part = name.rsplit(".", 1)[-1]
        if part in self._missing:
            raise self._missing[part]
        return self.cupy if name == "cupy" else SimpleNamespace(getVersion=lambda: (12, 9))


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (
            Machine(cupy=ImportError("No module named 'cupy'", name="cupy")),
            ["CuPy is not installed", "extra `cuda`"],
        ),
        (Machine(cupy=ImportError("libx.so:\nnot found")), ["CuPy cannot be imported", "not found"]),
        (Machine(driver="cudaErrorInsufficientDriver"), ["InsufficientDriver", "install NVIDIA's driver"]),
        (Machine(driver=0), ["driver is not installed"]),
        (Machine(driver=11080), ["too old (CUDA 11.8)", "CUDA 12"]),
        (Machine(devices=0), ["no GPU"]),
        (Machine(compute="75"), ["capability 7.5", "8.0"]),
        (Machine(nvrtc=RuntimeError("libnvrtc.so.12")), ["NVRTC", "libnvrtc.so.12", "extra `cuda`"]),
    ],
)
def test_what_is_missing(machine: Machine, words: list[str]) -> None:
    reason = why_unavailable(machine)
    assert reason is not None
    assert "\n" not in reason
    assert [word for word in words if word not in reason] == []


def test_a_complete_machine() -> None:
    assert why_unavailable(Machine()) is None
    assert device_name(Machine().cupy) == "NVIDIA H200, 139 GiB"
    assert 99 << 30 < free_memory(Machine().cupy) < 100 << 30


def test_loading_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # not installed, on a machine that can run CUDA too
    reason = why_unavailable()
    with pytest.raises(BackendUnavailable) as raised:
        load(tiny_q2(), context=64)
    assert str(raised.value) == reason
