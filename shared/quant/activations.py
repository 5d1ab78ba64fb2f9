"""Eight-bit activations: what the C engine's CPU build does to the inputs of quantised matrices.

Used by the `actq` mode only, to compare with that build. Quantise-and-widen: the results are float32.
Must not know: models, layers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


def round_q8_0(values: Array) -> Array:
    """Values [..., n] in blocks of 32 with a float32 scale amax / 127. Spec: model §3.1."""
    blocks = values.reshape(*values.shape[:-1], -1, 32)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127.0)
    inverse = np.divide(np.float32(1.0), scale, out=np.zeros_like(scale), where=scale > 0)
    widened: Array = np.clip(np.rint(blocks * inverse), -128, 127) * scale
    return widened.reshape(values.shape)


def round_q8_k(values: Array) -> Array:
    """Values [..., n] in blocks of 256; the scale maps the first value of largest magnitude, sign included,
    to -127. Spec: model §3.1."""
    blocks = values.reshape(*values.shape[:-1], -1, 256)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1, keepdims=True), axis=-1)
    inverse = np.divide(np.float32(-127.0), largest, out=np.zeros_like(largest), where=largest != 0)
    scale = np.divide(np.float32(1.0), inverse, out=np.zeros_like(inverse), where=inverse != 0)
    widened: Array = np.minimum(np.rint(blocks * inverse), 127) * scale
    return widened.reshape(values.shape)
