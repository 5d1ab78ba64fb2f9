"""Weights small enough to be kept in the repository: matrices in 8 bits, the rest in 32.

Training goes on from such a file, with fresh moments; nothing is gained by keeping more of an unfinished
model. `python -m bench.embedded_model.packed STATE PACKED` makes one from a training state.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.embedded_model.blocks import q8_0
from shared.gguf.types import TensorType
from shared.quant.dequantise import dequantise

Array = npt.NDArray[Any]

_SIZE = "size of "  # before a tensor's name: its dimensions, where the data are blocks


def pack(path: Path, weights: Mapping[str, Array], steps: int, tokens: int) -> None:
    """Writes weights and how long they were trained."""
    held: dict[str, Array] = {"steps": np.int64(steps), "tokens": np.int64(tokens)}
    for name, values in weights.items():
        if values.dtype.kind == "i":
            held[name] = values.astype(np.uint8)
        elif values.ndim == 1 or values.size % 32:
            held[name] = values.astype(np.float32)
        else:
            held[name] = q8_0(values.astype(np.float32))
            held[_SIZE + name] = np.array(values.shape)
    with path.open("wb") as file:
        np.savez_compressed(file, **held)


def unpack(path: Path) -> tuple[dict[str, Array], int, int]:
    """Weights, steps and tokens of a packed file."""
    weights: dict[str, Array] = {}
    with np.load(path, allow_pickle=False) as held:
        for name in held.files:
            if name.startswith(_SIZE) or name in ("steps", "tokens"):
                continue
            values = held[name]
            if _SIZE + name in held.files:
                size = tuple(int(n) for n in held[_SIZE + name])
                values = dequantise(TensorType.Q8_0, values.reshape(-1), size)
            elif values.dtype == np.uint8:
                values = values.astype(np.int64)
            weights[name] = values
        return weights, int(held["steps"]), int(held["tokens"])


def main() -> None:
    from bench.embedded_model.checkpoint import read_checkpoint

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("state", type=Path)
    parser.add_argument("packed", type=Path)
    options = parser.parse_args()
    state = read_checkpoint(options.state)
    weights = {name: tensor.numpy() for name, tensor in state["average"].items()}
    pack(options.packed, weights, state["steps"], state["tokens"])
    print(f"{options.packed.stat().st_size / 1e6:.2f} MB, {state['tokens'] / 1e6:.2f} M tokens")


if __name__ == "__main__":
    main()
