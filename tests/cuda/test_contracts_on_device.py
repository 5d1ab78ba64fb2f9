"""The tests of the kernels can be run on a GPU, on a machine that has little else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.cuda.models import needs_simulator
from tests.cuda.on_device import ELSEWHERE, HostArrayDevice

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def pytest_there(*arguments: str, folder: Path) -> str:
    """What pytest says on a bare machine; it has to succeed."""
    command = [sys.executable, "-m", "tests.cuda.bare_machine", "-q", f"--basetemp={folder / 'there'}"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_simulator
def test_every_contract_is_found_and_those_of_two_files_hold(tmp_path: Path) -> None:
    found = pytest_there("--collect-only", str(FOLDER), folder=tmp_path)
    for file in FOLDER.glob("test_*.py"):
        assert (f"{file.name}::" in found) == (file.name not in ELSEWHERE), file.name
    files = [str(FOLDER / name) for name in ("test_imports.py", "test_headers.py")]
    assert " skipped" not in pytest_there(*files, folder=tmp_path)


@pytest.mark.long
@needs_simulator
def test_contracts_of_steps_hold_on_a_bare_machine(tmp_path: Path) -> None:
    files = ("attend", "dense", "hyper", "index", "rows")
    said = pytest_there(*(str(FOLDER / f"test_{name}.py") for name in files), folder=tmp_path)
    assert " skipped" not in said
    pytest_there(str(FOLDER / "test_golden.py"), "-k", "short and single and kv", folder=tmp_path)


def device_of(kernel: Callable[..., None]) -> Any:
    """The launcher of a device whose only kernel is a function over arrays in GPU memory."""
    module = SimpleNamespace(get_function=lambda name: lambda grid, block, given, shared_mem: kernel(*given))
    cupy = SimpleNamespace(RawModule=lambda code, options: module, asarray=np.array, asnumpy=np.array)
    function = HostArrayDevice(cupy).function("text", "made", ())
    return lambda *arrays: function((1,), (1,), arrays)


def test_results_come_back_into_the_arrays_that_were_given() -> None:
    values, part = np.arange(6, dtype=np.float32), np.zeros(3, np.int32)

    def kernel(whole: Any, end: Any, number: Any, other: Any) -> None:
        end += number
        assert whole[5] == 5 + number  # the same memory there as here
        other[...] = 7

    device_of(kernel)(values, values[4:], np.float32(10), part)
    assert values.tolist() == [0, 1, 2, 3, 14, 15]
    assert part.tolist() == [7, 7, 7]


def test_a_kernel_that_writes_where_it_must_not_is_found() -> None:
    def beyond(array: Any) -> None:
        np.lib.stride_tricks.as_strided(array, (5,), (4,))[4] = 0

    with pytest.raises(AssertionError, match="made wrote beside an array"):
        device_of(beyond)(np.ones(4, np.float32))
    fixed = np.ones(4, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(AssertionError, match="only read"):
        device_of(lambda array: array.fill(2))(fixed)
    with pytest.raises(AssertionError, match="contiguous"):
        device_of(lambda array: None)(np.ones((4, 4), np.float32)[:, 1])
