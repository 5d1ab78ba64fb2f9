"""The shipped checkpoint through the NumPy reference in float32: what model files are measured against."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.embedded_model.shipped_weights import read_shipped
from shared.model.open import open_model
from shared.model.reference import Activation, Reference
from shared.model.reference_engine import ReferenceEngine
from shared.model.reference_weights import ReferenceWeights
from shared.model.shape import ModelShape

Array = npt.NDArray[np.float32]


class CheckpointWeights(ReferenceWeights):
    """The numbers that a checkpoint means, in place of those of a model file made from it."""

    def __init__(self, folder: Path, shape: ModelShape) -> None:
        self._held = read_shipped(folder, shape)
        self._shape = shape

    def tensor(self, name: str) -> Array:
        return self._held[name]

    def expert(self, layer: int, part: str, expert: int) -> Array:
        return self.tensor(f"blk.{layer}.ffn_{part}_exps.weight")[expert]

    def router_bias(self, layer: int) -> Array:
        name = f"blk.{layer}.exp_probs_b.bias"
        return self._held.get(name, np.zeros(self._shape.expert_count, np.float32))

    def embedding(self, tokens: npt.NDArray[np.int64]) -> Array:
        return self.tensor("token_embd.weight")[tokens]

    def hashed_experts(self, layer: int, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        table: npt.NDArray[np.int64] = self._held[f"blk.{layer}.ffn_gate_tid2eid.weight"]
        return table[tokens]


class CheckpointEngine(ReferenceEngine):
    """The reference engine over the numbers of a checkpoint; `path` is a model file made from it, which gives
    the metadata and the vocabulary."""

    def __init__(self, folder: Path, path: Path, activation: Activation = "kv") -> None:
        model = open_model(path)
        super().__init__(model, activation=activation)
        self._reference = Reference(CheckpointWeights(folder, model.shape), model.shape, activation)
