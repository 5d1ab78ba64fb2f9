"""What a session remembers on the device: buffers at fixed addresses, written in place.

A step writes the slots of its own positions only, and rings are long enough that these hold nothing which
a token before the step's end still sees. So a step of one token can be taken back, and a cancelled one
forgotten, by leaving the position where it was; only frontier rings are too short for a step of several
tokens, and are kept aside while it runs. Must not know: weights, the forward pass, files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ds4cuda.device import Device
from shared.model.frontier import empty_ring
from shared.model.memory import compressed_capacity, raw_capacity
from shared.model.shape import ModelShape


@dataclass(frozen=True, slots=True)
class CompressedRows:
    """Append-only rows of one compressed layer: `attention` [rows, head dim], `index` float32 [rows, index
    dim] on ratio-4 layers."""

    attention: Any
    index: Any | None


class State:
    """All layers' buffers for a context of `context` tokens, filled up to `position`.

    `raw` [layers, slots, head dim] is each layer's ring, position p in slot p mod slots: binary16 bits as
    uint16 where rows are rounded, else float32. `frontiers` float32 [layers of that ratio, slots, width]
    holds for each ratio what unfinished windows need: a row is [kv | score] of the attention compressor,
    then on ratio-4 layers of the index compressor.
    """

    def __init__(
        self, device: Device, shape: ModelShape, context: int, prefill_chunk: int, *, rounds: bool
    ) -> None:
        self.shape = shape
        self.position = 0
        self._device = device
        self.row_dtype: npt.DTypeLike = np.uint16 if rounds else np.float32
        ratios = shape.compress_ratios
        slots = raw_capacity(context, prefill_chunk, shape.window)
        # The longest step whose own rows leave those before it alone that its first token sees.
        self.longest_step = min(prefill_chunk, slots - shape.window) if slots < context else prefill_chunk
        self.raw = device.zeros((len(ratios), slots, shape.head_dim), self.row_dtype)
        members = {r: [i for i, ratio in enumerate(ratios) if ratio == r] for r in set(ratios) if r}
        self._place = {layer: at for layers in members.values() for at, layer in enumerate(layers)}
        self._empty = {ratio: empty_ring(shape, ratio) for ratio in members}
        self.frontiers = {
            ratio: device.empty((len(layers), *self._empty[ratio].shape), np.float32)
            for ratio, layers in members.items()
        }
        self._kept = {ratio: device.empty(ring.shape, np.float32) for ratio, ring in self.frontiers.items()}
        self.compressed = [self._compressed(ratio, context) for ratio in ratios]
        self.reset()

    @property
    def arrays(self) -> list[Any]:
        rows = [rows for rows in self.compressed if rows is not None]
        compressed = [array for row in rows for array in (row.attention, row.index) if array is not None]
        return [self.raw, *self.frontiers.values(), *self._kept.values(), *compressed]

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays)

    def frontier(self, layer: int) -> Any:
        """A compressed layer's frontier ring [slots, width]."""
        return self.frontiers[self.shape.compress_ratios[layer]][self._place[layer]]

    def keep_frontiers(self) -> None:
        """Before a step of several tokens: put frontiers aside."""
        for ratio, ring in self.frontiers.items():
            self._device.copy(self._kept[ratio], ring)

    def put_back_frontiers(self) -> None:
        """After such a step was cancelled."""
        for ratio, ring in self.frontiers.items():
            self._device.copy(ring, self._kept[ratio])

    def reset(self) -> None:
        """Back to position 0. Only frontiers hold anything that a first token could see."""
        self.position = 0
        for ratio, ring in self.frontiers.items():
            for layer in ring:
                self._device.write(layer, self._empty[ratio])

    def _compressed(self, ratio: int, context: int) -> CompressedRows | None:
        if not ratio:
            return None
        rows = compressed_capacity(context, ratio)
        index = self._device.zeros((rows, self.shape.index_dim), np.float32) if ratio == 4 else None
        return CompressedRows(self._device.zeros((rows, self.shape.head_dim), self.row_dtype), index)
