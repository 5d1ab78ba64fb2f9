"""One direction for each layer of a model, and the file that holds them. Spec: model §7.

Must not know: engines, scales, how directions are found.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from shared.errors import UsageError
from shared.evaluation.input_file import read_bytes
from shared.kv.files.replacement import Replacement
from shared.model.shape import ModelShape

Array = npt.NDArray[np.float32]
# The output of a layer's attention, or of its experts, before it joins the streams.
Component = Literal["attn_out", "ffn_out"]

_STORED = np.dtype("<f4")


@dataclass(frozen=True, slots=True, eq=False)
class Directions:
    """`values` float32 [layers, width], normally of unit length each and used as they are; `digest`, 64 hex
    digits, tells these from others."""

    values: Array
    digest: str

    @classmethod
    def of(cls, values: npt.NDArray[np.floating]) -> Directions:
        """Those numbers [layers, width], as a file would keep them."""
        stored = np.ascontiguousarray(values, _STORED)
        return cls(stored.astype(np.float32), hashlib.sha256(stored.tobytes()).hexdigest())


def read_directions(path: Path, shape: ModelShape) -> Directions:
    """The raw little-endian float32 numbers in `path`, layer by layer, for a model of `shape`.

    Raises UsageError for a file that cannot be read, is of another size, or holds what is no finite number.
    """
    content = read_bytes(path, "the steering file")
    layers, width = shape.layer_count, shape.embedding_width
    expected = layers * width * _STORED.itemsize
    if len(content) != expected:
        raise UsageError(
            f"the steering file {path} has {len(content)} bytes and this model needs {expected} "
            f"({layers} layers of {width} numbers): is it of another model?"
        )
    values = np.frombuffer(content, _STORED).reshape(layers, width)
    wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if wrong.size:
        raise UsageError(f"the steering file {path} holds numbers of layer {wrong[0]} that are not finite")
    return Directions.of(values)


def write_directions(path: Path, directions: Directions) -> None:
    """Write the file, wholly or not at all. Raises OSError."""
    with Replacement(path, private=False) as new:
        new.file.write(directions.values.astype(_STORED).tobytes())
        new.commit()
