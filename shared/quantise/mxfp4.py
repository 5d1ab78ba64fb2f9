"""FP4 of a checkpoint to MXFP4: the same numbers in another arrangement. Spec: model §3.0."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_NAN_SCALE = 255


def repack(codes: Bytes, scales: Bytes) -> Bytes:
    """MXFP4 blocks uint8 [rows, columns / 32 * 17] of codes [rows, columns / 2], two a byte with the earlier
    element in the low bits, and E8M0 scales [rows, columns / 32]. Raises ValueError for a scale that is NaN.
    """
    if (scales == _NAN_SCALE).any():
        raise ValueError("holds values that are not finite")
    pairs = codes.reshape(-1, 16)
    elements = np.stack((pairs & 15, pairs >> 4), axis=2).reshape(-1, 32)
    nibbles = elements[:, :16] | elements[:, 16:] << 4
    return np.concatenate((scales.reshape(-1, 1), nibbles), axis=1).reshape(len(codes), -1)
