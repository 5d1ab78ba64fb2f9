"""Weights for the NumPy reference: dequantised to float32 on use, kept while they fit a byte budget.

Owns the cache and the way from tensor names to arrays. Must not know: the forward pass.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from shared.gguf.reader import GgufFile
from shared.model.routing_table import hash_experts
from shared.model.shape import ModelShape
from shared.quant.dequantise import dequantise

Array = npt.NDArray[np.float32]

_CACHE_BYTES = 4 << 30
_WHOLE = -1  # in the place of an expert's number


class ReferenceWeights:
    """The tensors of an open model file as float32 arrays in NumPy order: a matrix is [outputs, inputs]."""

    def __init__(self, gguf: GgufFile, shape: ModelShape, *, cache_bytes: int = _CACHE_BYTES) -> None:
        self._gguf = gguf
        self._shape = shape
        self._cache_bytes = cache_bytes
        self._cached_bytes = 0
        self._cache: OrderedDict[tuple[str, int], Array] = OrderedDict()
        self._tables = [hash_experts(gguf, shape, layer) for layer in range(shape.hash_layers)]
        self._embedding = (
            gguf.data("token_embd.weight").view("<f2").reshape(shape.vocabulary_size, shape.embedding_width)
        )

    def tensor(self, name: str) -> Array:
        """A whole tensor."""
        return self._cached(name, _WHOLE)

    def layer(self, layer: int) -> Callable[[str], Array]:
        """Reads tensors of one layer by the rest of their names."""
        prefix = f"blk.{layer}."
        return lambda suffix: self.tensor(prefix + suffix)

    def expert(self, layer: int, part: str, expert: int) -> Array:
        """The matrix of one routed expert; `part` is gate, up or down."""
        name = f"blk.{layer}.ffn_{part}_exps.weight"
        return self._cached(name, expert)

    def router_bias(self, layer: int) -> Array:
        """Selection bias [experts]; zeros where the file has none."""
        name = f"blk.{layer}.exp_probs_b.bias"
        if name not in self._gguf.tensors:
            return np.zeros(self._shape.expert_count, np.float32)
        return self.tensor(name)

    def embedding(self, tokens: npt.NDArray[np.int64]) -> Array:
        """Embeddings [n, width] of token ids [n]."""
        return self._embedding[tokens].astype(np.float32)

    def hashed_experts(self, layer: int, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Expert ids [n, experts used] of a hash-routed layer."""
        return self._tables[layer][tokens].astype(np.int64)

    def _read(self, name: str, expert: int) -> Array:
        info, data = self._gguf.tensors[name], self._gguf.data(name)
        if expert == _WHOLE:
            return dequantise(info.type, data, info.dims[::-1])
        inputs, outputs, experts = info.dims
        return dequantise(info.type, data.reshape(experts, -1)[expert], (outputs, inputs))

    def _cached(self, name: str, expert: int) -> Array:
        key = (name, expert)
        found = self._cache.get(key)
        if found is not None:
            self._cache.move_to_end(key)
            return found
        value = self._read(name, expert)
        self._cache[key] = value
        self._cached_bytes += value.nbytes
        while self._cached_bytes > self._cache_bytes and len(self._cache) > 1:
            _, dropped = self._cache.popitem(last=False)
            self._cached_bytes -= dropped.nbytes
        return value
