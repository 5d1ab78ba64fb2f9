"""Checks of a tiny text, for tests of the run: another process imports them."""

from __future__ import annotations

import os
import time

import numpy as np

from tests.ksim import metal_kernel

# Each line's mutants end in a way of their own, see check_tiny.
TINY = """\
const uint i = thread_position_in_grid.x;
if (i < 8) y[i] = x[i] + 1.0f;
const bool unused = x[0] < 1.0f;
"""


def check_tiny(text: str) -> None:
    """Runs a text over 8 numbers; every one must grow by one."""
    x = np.arange(8, dtype=np.float32)
    kernel = metal_kernel("tiny", ["x"], ["y"], text, check="full")
    (y,) = kernel(
        inputs=[x], grid=(8, 1, 1), threadgroup=(8, 1, 1), output_shapes=[(8,)], output_dtypes=[np.float32]
    )
    assert y.tolist() == (x + 1).tolist()


def check_words(text: str) -> None:
    """Needs no compiler: passes "fine...", ends the process on "crash", never answers on "hang"."""
    if text == "crash":
        os.kill(os.getpid(), 9)
    while text == "hang":
        time.sleep(1)
    assert text.startswith("fine")
