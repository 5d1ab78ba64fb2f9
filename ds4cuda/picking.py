"""Tokens chosen on the device, so that the next step can be built on one before anyone knows it.

Must not know: sessions, models.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ds4cuda.device import Device
from ds4cuda.kernels.draw import DIGITS, SLICES, DrawScratch
from ds4cuda.operations import Operations
from shared.sampling import Sampling


class DevicePick:
    """A choice that was launched; unread on the device as `token`, int32 [1]."""

    def __init__(self, device: Device, token: Any) -> None:
        self.token = token
        self._fetch = device.fetch(token)

    def value(self) -> int:
        return int(self._fetch.value()[0])

    def tokens(self) -> list[int]:
        return [self.value()]


class Chooser:
    """Chooses from logits float32 [vocabulary] on the device. Holds the memory that a draw works in."""

    def __init__(self, device: Device, operations: Operations, vocabulary: int) -> None:
        self._device = device
        self._operations = operations
        self._scratch = DrawScratch(
            weights=device.empty((vocabulary,), np.uint64),
            bests=device.empty((SLICES,), np.float32),
            ids=device.empty((SLICES,), np.int32),
            sums=device.empty((DIGITS,), np.uint64),
            counts=device.empty((DIGITS,), np.int32),
        )

    def pick(
        self, logits: Any, sampling: Sampling, uniform: float, allowed: npt.NDArray[np.bool_] | None
    ) -> DevicePick:
        """As `shared.sampling.choose`, but without waiting. Spec: model §6.1."""
        device, operations, masked = self._device, self._operations, allowed is not None
        fallback, mask = 0, logits
        if allowed is not None:
            if allowed.shape != logits.shape:
                raise ValueError(f"the mask has {allowed.size} entries for {logits.size} logits")
            if not allowed.any():
                raise ValueError("the mask allows no token")
            fallback, mask = int(np.argmax(allowed)), device.upload(allowed.view(np.uint8))
        token = device.empty((1,), np.int32)
        if sampling.greedy:
            operations.pick[masked](logits, mask, token, fallback=fallback)
        else:
            operations.draw[masked](
                logits, mask, self._scratch, token, sampling=sampling, uniform=uniform, fallback=fallback
            )
        return DevicePick(device, token)
