"""The weights of an exported checkpoint as arrays by the names of a model file, to train on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.model.shape import ModelShape
from shared.quantise.plan import PlannedTensor, make_plan
from shared.quantise.recipe import Recipe
from shared.quantise.safetensors import Checkpoint

Array = npt.NDArray[Any]


def read_shipped(folder: Path, shape: ModelShape) -> dict[str, Array]:
    """Every tensor in NumPy order: float32, and int64 for routing tables. Raises CheckpointError."""
    with Checkpoint.open(folder) as checkpoint:
        plan = make_plan(checkpoint, shape, Recipe("mxfp4"))
        return {tensor.name: _values(checkpoint, tensor) for tensor in plan}


def _values(checkpoint: Checkpoint, tensor: PlannedTensor) -> Array:
    size = tensor.dims[::-1]
    if tensor.table is not None:
        stored = checkpoint.read(tensor.table, 0, tensor.table.nbytes)
        return stored.view(f"<i{tensor.table.nbytes // (size[0] * size[1])}").astype(np.int64).reshape(size)
    found = [matrix.floats(checkpoint, 0, matrix.rows) for matrix in tensor.matrices]
    return np.stack(found).reshape(size)
