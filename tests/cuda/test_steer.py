"""A direction taken out of outputs."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import steer
from tests.cuda.arrays import assert_close, numbers


@pytest.mark.parametrize(("width", "scale"), [(600, 1.5), (100, -2.0)])
def test_each_token_loses_its_part_along_the_direction(device: Device, width: int, scale: float) -> None:
    """Two rounds and a part of a third of all threads, and fewer numbers than threads."""
    random = np.random.default_rng(width)
    direction, output = numbers(random, width), numbers(random, 3, width)
    direction /= np.linalg.norm(direction)
    wide = output.astype(np.float64)
    along = wide @ direction.astype(np.float64)
    steer.build(device, width=width)(direction, np.array([scale], np.float32), output)
    assert_close(output, wide - scale * along[:, None] * direction)
