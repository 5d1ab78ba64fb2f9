"""What a load takes of the host: the weights of a few layers of the model's size, from a file full of zeros.

The file is hollow, so that it takes no room on a disk. Must not know: what weights are for.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.device.gpu import Gpu
from bench.device.host_memory import most_resident
from bench.device.recipe import tensor_type, with_layers
from bench.device.results import Results
from ds4cuda.device import Device
from ds4cuda.weights import STAGING_BYTES, WeightReader
from shared.gguf.reader import GgufFile
from shared.gguf.writer import TensorData, encode_header
from shared.model.shape import ModelShape
from shared.model.tensors import tensor_table

# What Python and CuPy may take beside the staging memory.
_SLACK = 96 << 20


@contextmanager
def hollow_file(shape: ModelShape) -> Iterator[Path]:
    """A file with the tensors of a model of the q2 recipe, all zeros."""
    tensors = [
        TensorData(spec.name, tensor_type(spec), spec.dims, b"")
        for spec in tensor_table(shape)
        if not spec.optional
    ]
    header = encode_header([], tensors)
    # A file system in memory would count its pages as this process's own.
    disk = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=disk) as folder:
        path = Path(folder) / "hollow.gguf"
        with path.open("wb") as file:
            file.write(header)
            file.truncate(len(header) + sum(-(-tensor.nbytes // 32) * 32 for tensor in tensors))
        yield path


def run(gpu: Gpu, shape: ModelShape, layers: int, results: Results) -> None:
    """Peak memory beside the file, device memory, and speed of a load of so many layers."""
    part = with_layers(shape, layers)
    device = Device(gpu.cupy)
    used = gpu.used_memory()
    with hollow_file(part) as path, GgufFile.open(path) as file, most_resident() as most:
        started = time.perf_counter()
        weights = WeightReader(device, file, part).read()
        seconds = time.perf_counter() - started
        size = os.path.getsize(path)
    found: dict[str, Any] = {
        "layers": layers,
        "file bytes": size,
        "seconds": round(seconds, 3),
        "GB/s": round(size / seconds / 1e9, 2),
        "most host memory": most["own"],
        "most of the file in memory": most["file"],
        "staging memory": STAGING_BYTES,
        "device memory": gpu.used_memory() - used,
        "weights": weights.nbytes,
    }
    found["within one staging buffer"] = most["own"] <= STAGING_BYTES + _SLACK
    results.put("load", value=found)
