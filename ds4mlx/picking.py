"""Tokens chosen from logits that may still be on their way.

A greedy choice is made on the device, so that the next step can be built on it before anyone knows it. A
draw needs float64 to agree with the reference choice everywhere, which the GPU does not have: it is made on
the host when its value is first asked for. Must not know: sessions, models.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from shared.sampling import Sampling, choose
from shared.session import Picked

_LOWEST = -1e30  # what a best logit must exceed to be chosen, else the first allowed token is


class GreedyPick:
    """The argmax of `logits`, the lowest id on ties; lazy on the device as `token`, int32 [1]."""

    def __init__(self, logits: mx.array, allowed: npt.NDArray[np.bool_] | None) -> None:
        eligible = mx.isfinite(logits)
        fallback = 0
        if allowed is not None:
            if allowed.shape != logits.shape:
                raise ValueError(f"the mask has {allowed.size} entries for {logits.size} logits")
            if not allowed.any():
                raise ValueError("the mask allows no token")
            eligible = eligible & mx.array(allowed)
            fallback = int(np.argmax(allowed))
        candidates = mx.where(eligible, logits, -mx.inf)
        best = mx.where(candidates.max() > _LOWEST, mx.argmax(candidates), fallback)
        self.token = best.astype(mx.int32).reshape(1)
        self._value: int | None = None

    def value(self) -> int:
        if self._value is None:
            self._value = int(np.array(self.token)[0])
        return self._value

    def tokens(self) -> list[int]:
        return [self.value()]


class DrawnPick:
    """A draw by `uniform`, made when the value is first read."""

    def __init__(
        self,
        logits: mx.array,
        sampling: Sampling,
        uniform: float,
        allowed: npt.NDArray[np.bool_] | None,
    ) -> None:
        self._choice: tuple[Any, ...] | None = (logits, sampling, uniform, allowed)
        self._value = -1

    def value(self) -> int:
        if self._choice is not None:
            logits, sampling, uniform, allowed = self._choice
            self._value = choose(np.array(logits), sampling, uniform, allowed)
            self._choice = None
        return self._value

    def tokens(self) -> list[int]:
        return [self.value()]


def pick(
    logits: mx.array, sampling: Sampling, uniform: float, allowed: npt.NDArray[np.bool_] | None
) -> Picked:
    """Choose from logits float32 [vocabulary]. Spec: model §6.1."""
    if sampling.temperature > 0:
        return DrawnPick(logits, sampling, uniform, allowed)
    return GreedyPick(logits, allowed)
