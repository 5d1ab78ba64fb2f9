"""Tokens chosen from logits that may still be on their way.

A greedy choice is made on the device, so that the next step can be built on it before anyone knows it. A
draw is made on the host when its value is first asked for, from logits whose copy was begun when it was
made. Must not know: sessions, models.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ds4cuda.device import Device
from ds4cuda.operations import Operations
from shared.sampling import Sampling, choose
from shared.session import Picked


class DevicePick:
    """The best of `logits`; lazy on the device as `token`, int32 [1]."""

    def __init__(
        self, device: Device, operations: Operations, logits: Any, allowed: npt.NDArray[np.bool_] | None
    ) -> None:
        fallback, mask = 0, logits
        if allowed is not None:
            if allowed.shape != logits.shape:
                raise ValueError(f"the mask has {allowed.size} entries for {logits.size} logits")
            if not allowed.any():
                raise ValueError("the mask allows no token")
            fallback, mask = int(np.argmax(allowed)), device.upload(allowed.view(np.uint8))
        self.token = device.empty((1,), np.int32)
        operations.pick[allowed is not None](logits, mask, self.token, fallback=fallback)
        self._fetch = device.fetch(self.token)

    def value(self) -> int:
        return int(self._fetch.value()[0])

    def tokens(self) -> list[int]:
        return [self.value()]


class DrawnPick:
    """A draw by `uniform`, made when the value is first read."""

    def __init__(
        self,
        device: Device,
        logits: Any,
        sampling: Sampling,
        uniform: float,
        allowed: npt.NDArray[np.bool_] | None,
    ) -> None:
        self._fetch = device.fetch(logits)
        self._choice = (sampling, uniform, allowed)
        self._value: int | None = None

    def value(self) -> int:
        if self._value is None:
            self._value = choose(self._fetch.value(), *self._choice)
        return self._value

    def tokens(self) -> list[int]:
        return [self.value()]


def pick(
    device: Device,
    operations: Operations,
    logits: Any,
    sampling: Sampling,
    uniform: float,
    allowed: npt.NDArray[np.bool_] | None,
) -> Picked:
    """Choose from logits float32 [vocabulary]. Spec: model §6.1."""
    if sampling.temperature > 0:
        return DrawnPick(device, logits, sampling, uniform, allowed)
    return DevicePick(device, operations, logits, allowed)
