"""The two tables of the IQ2_XXS format: 256 magnitudes octets and 128 sign octets.

The magnitudes stand in `iq2_xxs.bin` (uint8 [256, 8], values 8, 25, 43), written from the `gguf` package by
`python -m shared.quant.iq2`. Must not know: the block layout around them.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

_FILE = "iq2_xxs.bin"


@cache
def iq2_grid() -> npt.NDArray[np.uint8]:
    """Magnitudes of the eight elements of each grid entry, uint8 [256, 8]. Spec: model §3."""
    content = resources.files("shared.quant").joinpath(_FILE).read_bytes()
    return np.frombuffer(content, np.uint8).reshape(256, 8)


@cache
def iq2_signs() -> npt.NDArray[np.uint8]:
    """Sign bits of an octet, uint8 [128]: the index with bit 7 set so that the number of bits is even."""
    index = np.arange(128, dtype=np.uint8)
    odd = np.unpackbits(index[:, None], axis=1).sum(axis=1) % 2
    signs: npt.NDArray[np.uint8] = index | (odd << 7).astype(np.uint8)
    return signs


def _write_grid() -> None:
    from gguf.quants import IQ2_XXS

    IQ2_XXS.init_grid()  # type: ignore[no-untyped-call]
    grid = np.asarray(IQ2_XXS.grid).reshape(256, 8).astype(np.uint8)
    Path(__file__).with_name(_FILE).write_bytes(grid.tobytes())


if __name__ == "__main__":
    _write_grid()
