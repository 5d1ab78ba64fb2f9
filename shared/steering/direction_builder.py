"""The directions in which a model's outputs differ between two kinds of prompts. Spec: apps §9.

Float64 throughout, prompt by prompt. Must not know: engines, prompts, files.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shared.errors import Ds4Error

Rows = npt.NDArray[np.float64]

# What is left of a unit vector below this is rounding of the float32 outputs, not a direction.
_LEAST_REST = 1e-5


class NoDirection(Ds4Error):
    """The outputs show no direction in some layer."""


@dataclass(slots=True)
class DirectionBuilder:
    """Takes pairs of outputs, one row for each layer. With `pair_normalize` each pair's difference counts
    alike, however long; with `orthogonalize` what points along the mean of the bad outputs is left out."""

    pair_normalize: bool = False
    orthogonalize: bool = True
    pairs: int = field(default=0, init=False)
    _differences: Rows | None = field(default=None, init=False)
    _bad: Rows | None = field(default=None, init=False)

    def add(self, good: npt.NDArray[np.floating], bad: npt.NDArray[np.floating]) -> None:
        """One pair of outputs [layers, width], of a good prompt and a bad one. Raises NoDirection for
        numbers that are not finite."""
        for outputs in (good, bad):
            lost = np.flatnonzero(~np.isfinite(outputs).all(axis=1))
            if lost.size:
                raise NoDirection(f"no direction in layer {lost[0]}: its outputs are not finite")
        wide = bad.astype(np.float64)
        difference = good.astype(np.float64) - wide
        if self.pair_normalize:
            difference = unit_rows(difference)
        self._differences = difference if self._differences is None else self._differences + difference
        self._bad = wide if self._bad is None else self._bad + wide
        self.pairs += 1

    def build(self) -> Rows:
        """The unit directions, float64 [layers, width], from bad to good. Raises NoDirection."""
        if self._differences is None or self._bad is None:
            raise NoDirection("there is no pair of prompts to build directions from")
        directions = unit_rows(self._differences)
        self._require(directions, "both kinds of prompts give the same outputs")
        if self.orthogonalize:
            control = unit_rows(self._bad)
            # Twice: the first subtraction leaves a rest of the size of its own rounding.
            for _ in range(2):
                directions = directions - control * (directions * control).sum(axis=1, keepdims=True)
                short = np.linalg.norm(directions, axis=1) < _LEAST_REST
                directions = unit_rows(np.where(short[:, None], 0.0, directions))
            self._require(directions, "the outputs differ only in size (--no-orthogonalize keeps that)")
        return directions

    @staticmethod
    def _require(directions: Rows, problem: str) -> None:
        missing = np.flatnonzero(~directions.any(axis=1))
        if missing.size:
            raise NoDirection(f"no direction in layer {missing[0]}: {problem}")


def unit_rows(rows: Rows) -> Rows:
    """Each of `rows` [layers, width] divided by its length; zeros stay zeros."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Rows = rows / np.where(lengths > 0, lengths, 1.0)
    return scaled
