"""The shipped checkpoint through the NumPy reference in float32: what model files are measured against."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shared.model.open import open_model
from shared.model.reference import Activation, Reference
from shared.model.reference_engine import ReferenceEngine
from shared.model.reference_weights import ReferenceWeights
from shared.model.shape import ModelShape
from shared.quantise.plan import PlannedTensor, make_plan
from shared.quantise.recipe import Recipe
from shared.quantise.safetensors import Checkpoint

Array = npt.NDArray[np.float32]


class CheckpointWeights(ReferenceWeights):
    """The floats that a checkpoint means, in place of those of the model file made from it; only routing
    tables, which are whole numbers, are the file's."""

    def __init__(self, folder: Path, file_weights: ReferenceWeights, shape: ModelShape) -> None:
        self._file = file_weights
        self._checkpoint = Checkpoint.open(folder)
        self._plan = {tensor.name: tensor for tensor in make_plan(self._checkpoint, shape, Recipe("mxfp4"))}
        self._shape = shape
        self._whole = cache(self._read_whole)
        self._one = cache(self._read_expert)

    def tensor(self, name: str) -> Array:
        return self._whole(name)

    def expert(self, layer: int, part: str, expert: int) -> Array:
        return self._one(f"blk.{layer}.ffn_{part}_exps.weight", expert)

    def router_bias(self, layer: int) -> Array:
        return self._file.router_bias(layer)

    def embedding(self, tokens: npt.NDArray[np.int64]) -> Array:
        return self.tensor("token_embd.weight")[tokens]

    def hashed_experts(self, layer: int, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._file.hashed_experts(layer, tokens)

    def _read_whole(self, name: str) -> Array:
        tensor = self._plan[name]
        return self._floats(tensor, 0).reshape(tensor.dims[::-1])

    def _read_expert(self, name: str, expert: int) -> Array:
        return self._floats(self._plan[name], expert)

    def _floats(self, tensor: PlannedTensor, number: int) -> Array:
        matrix = tensor.matrices[number]
        return matrix.floats(self._checkpoint, 0, matrix.rows)


class CheckpointEngine(ReferenceEngine):
    """The reference engine over the floats of a checkpoint; `path` is a model file made from it, which gives
    the metadata and the vocabulary."""

    def __init__(self, folder: Path, path: Path, activation: Activation = "kv") -> None:
        model = open_model(path)
        super().__init__(model, activation=activation)
        weights = CheckpointWeights(folder, ReferenceWeights(model.gguf, model.shape), model.shape)
        self._reference = Reference(weights, model.shape, activation)
