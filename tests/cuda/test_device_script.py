"""The script for a machine with a GPU is tried in the simulator, so that it does not rot."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.device import environment, report
from bench.device.counting import CountedCupy
from bench.device.gpu import Gpu
from bench.device.host_memory import STATUS, most_resident
from bench.device.random_weights import BLOCKS, HALVES, RandomWeights
from bench.device.recipe import fitting_layers, weight_bytes, with_layers
from bench.device.traffic import token_bytes
from ds4cuda.device import Device
from ds4cuda.kernels.kernel import OPTIONS
from shared.model.known_shapes import FLASH
from shared.model.open import open_model
from shared.quant.dequantise import dequantise
from tests.cuda.cupy_standin import CupyStandin
from tests.cuda.models import needs_simulator
from tests.cuda.nvrtc import Compiler, library_path
from tests.support.golden import tiny_q2

ROOT = Path(__file__).parents[2]
with open_model(tiny_q2()) as file:
    TINY = with_layers(file.shape, 4)


def run_script(folder: Path, *options: str) -> dict[str, Any]:
    output = folder / "results.json"
    command = [str(ROOT / "bench" / "device" / "run.sh"), "--simulate", "--output", str(output), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(output.read_text())
    assert {step["state"] for step in found["steps"].values()} == {"done"}
    return found


@needs_simulator
def test_a_short_run_says_what_it_found(tmp_path: Path) -> None:
    found = run_script(tmp_path, "--steps", "copy", "load")
    assert found["simulated"]
    assert found["machine"]["packages"]["numpy"]
    assert found["steps"]["copy"]["GB/s"] > 0
    assert found["steps"]["load"]["load"]["within one staging buffer"]


@pytest.mark.long
@needs_simulator
@pytest.mark.parametrize("mode", ["kv", "actq"])
def test_the_model_is_measured(mode: str, tmp_path: Path) -> None:
    step = run_script(tmp_path, "--layers", "4", "--steps", f"model-{mode}")["steps"][f"model-{mode}"]
    assert "failed" not in json.dumps(step)
    assert step["repeated"]["greedy"]["equal"]
    assert step["repeated"]["greedy"]["finite"]
    decoded = step["decode"]["9"]
    assert decoded["synchronisations per token"] <= 1
    assert decoded["graphs per token"] == 1
    assert decoded["launches per token"] > 4 * 10
    assert step["prefill"]["20"]["tokens"] == 20
    kernels = step["kernels of a decode step"]["40"]
    assert {"attend", "combine", "compress"} <= set(kernels)
    assert sum(of["launches"] for of in kernels.values()) <= decoded["launches per token"]


@pytest.mark.long
@needs_simulator
def test_contract_tests_are_run(tmp_path: Path) -> None:
    found = run_script(tmp_path, "--steps", "contracts", "--files", "test_pick.py")["steps"]["contracts"]
    assert found["files"]["test_pick.py"]["passed"] == found["passed"] > 2
    assert found["files that failed"] == []


def test_what_failed_is_told() -> None:
    found = {
        "state": "done",
        "seconds": 1,
        "passed": 3,
        "files": {"test_a.py": {"passed": 3, "failed": {"test_x": "why"}}, "test_b.py": {"cut off": True}},
    }
    told = report.lines("contracts", found)
    assert told[1:] == [
        "  3 tests passed",
        "  FAILED test_a.py test_x",
        "  NOT RUN test_b.py: no time was left",
    ]
    broken = {
        "state": "stopped after 5 s",
        "seconds": 5,
        "decode": {"9": {"failed": "Traceback\nValueError: odd\n"}},
    }
    assert report.lines("model-kv", broken)[1] == "  decode 9: FAILED ValueError: odd"
    assert report.failures(broken) == 1
    assert report.failures(found | {"files that failed": ["test_b.py"]}) == 2


def test_what_did_not_run_is_told_with_its_reason() -> None:
    files = {"a.py": {"not begun": True}, "b.py": {"cut off": True}, "c.py": {"passed": 0, "failed": {}}}
    told = report.lines("contracts", {"state": "done", "seconds": 1, "files": files})
    late = "no time was left"
    assert [line.strip() for line in told[2:]] == [
        f"NOT RUN a.py: {late}",
        f"NOT RUN b.py: {late}",
        "NOT RUN c.py: none of its tests passed",
    ]


@needs_simulator
def test_a_run_out_of_time_says_so_and_fails(tmp_path: Path) -> None:
    command = [str(ROOT / "bench" / "device" / "run.sh"), "--simulate", "--output", str(tmp_path / "r.json")]
    done = subprocess.run(
        [*command, "--steps", "copy", "--minutes", "0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout.splitlines()[0] == "copy: no time was left"
    assert done.stdout.splitlines()[-1] == "not all of it ran well: copy (exit status 2)"


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> object:
        if name in ("cupy", "tokenizers"):
            raise ImportError(f"No module named '{name}'")
        return SimpleNamespace()

    monkeypatch.setattr(environment.importlib, "import_module", load)
    told = environment.missing()
    assert [line.split(" ")[0] for line in told] == ["tokenizers", "cupy"]
    assert "cupy-cuda13x" in told[1]


def simulated() -> Gpu:
    return Gpu.open(simulate=True)


@needs_simulator
def test_random_weights_are_valid_blocks_of_a_plain_size() -> None:
    device = Device(CupyStandin())
    drawn = RandomWeights(device, TINY).draw()
    layer = drawn.layers[3]
    for kind, rows, columns in (
        (layer.experts.in_type, layer.experts.gate, TINY.embedding_width),
        (layer.experts.down_type, layer.experts.down, TINY.expert_width),
    ):
        numbers = dequantise(kind, rows.reshape(-1), (len(rows), columns))
        assert 0.1 < numbers.std() * columns**0.5 < 10
        assert np.unique(rows[0]).size > 30
    half = drawn.embedding.view(np.float16).astype(np.float32)
    assert abs(half.std() * TINY.embedding_width**0.5 - 1) < 0.05
    assert abs(half.mean()) < 0.01
    matrix = layer.query_up
    numbers = matrix.weights * np.repeat(matrix.scales.view(np.float16).astype(np.float32), 32, axis=1)
    assert abs(numbers.std() * matrix.inputs**0.5 - 1) < 0.05
    # Positional biases take twice what they take in a file, and no file needs the magnitudes.
    assert 0 < drawn.nbytes - weight_bytes(TINY) < 0.05 * drawn.nbytes
    whole = token_bytes(drawn, replace(TINY, experts_used=TINY.expert_count), 0)
    assert drawn.nbytes - drawn.embedding.nbytes < whole < drawn.nbytes
    assert token_bytes(drawn, TINY, 0) < whole
    assert token_bytes(drawn, TINY, 4000) > token_bytes(drawn, TINY, 400)


def test_the_model_is_cut_to_the_memory() -> None:
    whole = weight_bytes(FLASH)
    assert 80e9 < whole < 90e9
    assert fitting_layers(FLASH, whole) == 43
    assert fitting_layers(FLASH, whole - 1) == 42
    assert fitting_layers(FLASH, 0) == 4


@needs_simulator
def test_what_the_host_asks_for_is_counted() -> None:
    cupy = CountedCupy(simulated())
    device = Device(cupy)
    text = 'extern "C" __global__ void one(float* x) { x[threadIdx.x] += 1.0f; }'
    array, launch = device.zeros((4,), np.float32), device.function(text, "one", ())
    launch((1,), (4,), (array,))
    graph = device.capture(lambda: [launch((1,), (4,), (array,)) for _ in range(3)])
    graph.launch(device.stream)
    assert device.fetch(array).value().tolist() == [4] * 4
    device.synchronize()
    assert cupy.counts == {"launches": 1, "graphs": 1, "launches in graphs": 3, "copies": 1, "waits": 2}
    with cupy.timed_launches() as times:
        launch((1,), (4,), (array,))
    assert list(times) == ["one"]
    assert times["one"][0] > 0


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells what a process takes")
def test_the_most_memory_is_noticed() -> None:
    with most_resident() as most:
        block = np.ones(40 << 20, np.uint8)
    assert 39 << 20 < most["own"] < 60 << 20
    del block


@pytest.mark.parametrize("kernel", [BLOCKS, HALVES])
def test_random_weights_compile(kernel: Any) -> None:
    if library_path(12) is None:
        pytest.skip("NVRTC 12 is not installed (its wheels are for Linux)")
    assert Compiler.of(12).cubin(kernel.text(), f"{kernel.name}.cu", "sm_80", OPTIONS)
