"""The expert tables of hash-routed layers, read and checked. Used by every backend at load."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shared.errors import ModelFileError
from shared.gguf.reader import GgufFile
from shared.model.shape import ModelShape
from shared.quant.dequantise import integers


def hash_experts(gguf: GgufFile, shape: ModelShape, layer: int) -> npt.NDArray[np.int32]:
    """Expert ids of every token in a hash-routed layer, int32 [vocabulary, experts used].

    Raises ModelFileError for an id that is no expert. Spec: model §2.3.
    """
    name = f"blk.{layer}.ffn_gate_tid2eid.weight"
    table = integers(gguf.data(name), (shape.vocabulary_size, shape.experts_used))
    if table.min() < 0 or table.max() >= shape.expert_count:
        raise ModelFileError(
            f"{gguf.path.name} is damaged: {name} names an expert outside 0 to {shape.expert_count - 1}"
        )
    return table
