"""The arrays of a step in scratch memory, by what they hold: n tokens' vectors each.

Must not know: weights, the order of the forward pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ds4cuda.device import Device
from ds4cuda.kernels.attend import MOST_SPLITS
from ds4cuda.kernels.quantise import DENSE_BLOCK, EXPERT_BLOCK, SUM_OF, DenseCodes, ExpertCodes
from ds4cuda.operations import compressor_columns
from ds4cuda.scratch import Scratch
from ds4cuda.step import Step
from shared.model.frontier import frontier_widths
from shared.model.shape import ModelShape


class StepArrays:
    """Each for the tokens of a step, at the same address for every step."""

    def __init__(self, device: Device, scratch: Scratch, shape: ModelShape) -> None:
        self._scratch = scratch
        self._shape = shape
        self.nothing = device.zeros((1,), np.float32)  # stands for arrays that a layer does not have

    @property
    def position(self) -> Any:
        return self._scratch("position", 1)

    @property
    def attending(self) -> int:
        """Slots of partial results of attention."""
        return max(self._scratch.tokens, MOST_SPLITS)

    @property
    def all_rotations(self) -> Any:
        pairs = self._shape.rotary_dim // 2
        return self._scratch("rotations", 2, self._scratch.tokens, pairs, 2)

    def rotations(self, ratio: int) -> Any:
        """All compressed layers turn alike."""
        return self.all_rotations[min(ratio, 1)]

    def tokens(self, step: Step) -> Any:
        return self._scratch("tokens", step.count)

    def streams(self, step: Step) -> Any:
        return self._scratch("streams", step.count, self._shape.streams, self._shape.embedding_width)

    def joint(self, step: Step) -> Any:
        return self._scratch("joint", step.count, self._shape.streams * (1 + self._shape.streams))

    def x(self, step: Step) -> Any:
        return self._scratch("x", step.count, self._shape.embedding_width)

    def output(self, step: Step) -> Any:
        return self._scratch("output", step.count, self._shape.embedding_width)

    def queries(self, step: Step) -> Any:
        return self._scratch("queries", step.count, self._shape.head_count * self._shape.head_dim)

    def index_queries(self, step: Step) -> Any:
        return self._scratch("index_queries", step.count, self._shape.index_heads * self._shape.index_dim)

    def projected(self, ratio: int, step: Step) -> Any:
        return self._scratch("projected", step.count, compressor_columns(self._shape, ratio))

    def frontier(self, ratio: int, step: Step) -> Any:
        return self._scratch("frontier", step.count, sum(frontier_widths(self._shape, ratio)))

    def chosen_rows(self, step: Step) -> Any:
        return self._scratch("chosen_rows", step.count, self._shape.index_top_k)

    def routed(self, step: Step) -> tuple[Any, Any]:
        """Experts of each token, and their weights."""
        shape = (step.count, self._shape.experts_used)
        return self._scratch("experts", *shape), self._scratch("shares", *shape)

    def hidden(self, step: Step) -> tuple[Any, Any]:
        """Hidden vectors of the routed experts, for each pair of token and slot, and of the shared one."""
        width, pairs = self._shape.expert_width, step.count * self._shape.experts_used
        return self._scratch("hidden", pairs, width), self._scratch("shared_hidden", step.count, width)

    def dense_codes(self, count: int, width: int) -> DenseCodes:
        """8-bit activations [count, width] for a Q8_0 matrix, until the next ones."""
        return DenseCodes(
            self._scratch("dense_codes", count, width),
            self._scratch("dense_scales", count, width // DENSE_BLOCK),
        )

    def expert_codes(self, count: int, width: int) -> ExpertCodes:
        """8-bit activations [count, width] for routed experts, until the next ones."""
        return ExpertCodes(
            self._scratch("expert_codes", count, width),
            self._scratch("expert_scales", count, width // EXPERT_BLOCK),
            self._scratch("expert_sums", count, width // SUM_OF),
        )
