"""The trained weights as a checkpoint in the layout and the number formats of the published ones.

`python -m bench.embedded_model.export STATE FOLDER` takes the averaged weights of a training state. Routed
experts become FP4, attention and shared experts FP8, the rest BF16 or F32. Reading it needs no PyTorch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.embedded_model import vocabulary
from bench.embedded_model.model_file import CONTEXT, NAME
from bench.embedded_model.published_layout import StoredArray, write_config, write_vocabulary, write_weights
from bench.embedded_model.shape import SHAPE
from bench.embedded_model.stored_formats import bf16, fp4, fp8
from shared.gguf.types import TensorType
from shared.model.shape import ModelShape
from shared.model.tensors import EXPERT_TYPES, TensorSpec, tensor_table
from shared.quantise.source_names import source_name

Array = npt.NDArray[Any]

# Single parameters, which are called by no more than their name; those of a module end with `.weight`.
_SINGLE = ("_fn", "_scale", "_base", "_sink", ".ape", ".bias", ".tid2eid")
# Small matrices that steer much: routers and the weights of the streams.
_WIDE = ("hc_", "ffn_gate_inp", "_ape.")


def export(weights: Mapping[str, Array], shape: ModelShape, folder: Path) -> int:
    """Write `weights`, arrays by the names of a model file in NumPy order, into `folder`, which is made if
    need be. Returns the bytes of all files. Equal weights give equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens, merges = vocabulary.read()
    write_config(folder, shape, NAME, CONTEXT)
    write_vocabulary(folder, tokens, merges, vocabulary.SPECIALS)
    stored: dict[str, StoredArray] = {}
    for spec in tensor_table(shape):
        if spec.name in weights or not spec.optional:
            stored.update(_stored(spec, weights[spec.name]))
    write_weights(folder, stored)
    return sum(path.stat().st_size for path in folder.iterdir())


def _stored(spec: TensorSpec, values: Array) -> Iterator[tuple[str, StoredArray]]:
    if spec.types == EXPERT_TYPES:
        for number, expert in enumerate(values):
            name = source_name(spec.name, number)
            codes, scales = fp4(expert.astype(np.float32))
            yield f"{name}.weight", StoredArray("I8", codes, codes.shape)
            yield f"{name}.scale", StoredArray("F8_E8M0", scales, scales.shape)
        return
    name = source_name(spec.name)
    kind = spec.types[0]
    if kind is TensorType.Q8_0 and name != "head":
        codes, scales = fp8(values.astype(np.float32))
        yield f"{name}.weight", StoredArray("F8_E4M3", codes, codes.shape)
        yield f"{name}.scale", StoredArray("F8_E8M0", scales, scales.shape)
        return
    whole = name if name.endswith(_SINGLE) else f"{name}.weight"
    if kind is TensorType.I32:
        yield whole, StoredArray("I64", values.astype("<i8"), values.shape)
    elif kind is TensorType.F32 or any(part in spec.name for part in _WIDE):
        yield whole, StoredArray("F32", values.astype("<f4"), values.shape)
    else:
        yield whole, StoredArray("BF16", bf16(values), values.shape)


def averaged_weights(states: Sequence[Path]) -> dict[str, Array]:
    """The averaged weights of a training state, or the mean of those of several states of one run."""
    from bench.embedded_model.checkpoint import read_weights

    return mean_of([{name: tensor.numpy() for name, tensor in read_weights(s).items()} for s in states])


def mean_of(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """The mean of the weights of each name; whole numbers, such as hash tables, must be the same in all.
    Raises ValueError for weights of different models."""
    first, *others = parts
    mean = {}
    for name, values in first.items():
        total = values
        for other in others:
            if other[name].shape != values.shape:
                raise ValueError(f"{name} has different shapes: {values.shape}, {other[name].shape}")
            if values.dtype.kind == "f":
                total = total + other[name]
            elif not np.array_equal(values, other[name]):
                raise ValueError(f"{name} differs: these are not states of one run")
        mean[name] = total / np.float32(len(parts)) if values.dtype.kind == "f" else values
    return mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("state", type=Path, help="a training state")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    nbytes = export(averaged_weights([options.state]), SHAPE, options.folder)
    print(f"{options.folder}: {nbytes / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
