"""How the golden data was reduced to the size kept here: `python tests/golden/reduce.py FULL TARGET`.

FULL is the folder with everything the C engine's run produced, TARGET the folder to write. The rules are
in README.md beside this file. Uses only NumPy and the `gguf` package, nothing of the project.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader

WHOLE = (
    "prompts.json",
    "tokenizer.json",
    "tokenizer-split.json",
    "tokenizer-only.gguf",
    "vectors.npz",
    "cli-dump-tokens.txt",
    "cli-dump-logits.json",
    "cli-dump-logprobs.json",
    "kv/kv.json",
)
LOGITS = (
    "tiny-q2-short",
    "tiny-q2-medium",
    "tiny-q2-long",
    "tiny-q2-random",
    "tiny-q4-medium",
    "tiny-q4-long",
)
PRO_LOGITS = ("tiny-pro-q2-long",)
MODELS = ("tiny-q2.gguf", "tiny-pro-q2.gguf")
# Bytes of a block, whose first bytes are stored together, then the second ones, and so on.
BLOCK_BYTES = {"F16": 2, "F32": 4, "I32": 4, "Q8_0": 34, "Q2_K": 84, "Q4_K": 144, "IQ2_XXS": 66}
# Steps of the numbers that are kept in fixed point: their rounding is far below the least limit of a test.
FLOAT_LOGIT_STEP = 2.0**-20
KV_LOGIT_STEP = 2.0**-13
STREAM_STEP = 2.0**-21


def reduce_logits(source: Path, target: Path) -> None:
    """Drop the 8-bit activation logits (their ids stay) and thin what stores every position."""
    data = dict(np.load(source))
    positions = data["positions"]
    if len(positions) > 100:
        last = positions[-1]
        keep = (positions % 4 == 0) | (positions > last - 16)
        data["positions"] = positions[keep]
        for mode in ("float", "kv"):
            data[f"logits_{mode}"] = data[f"logits_{mode}"][keep]
    del data["logits_actq"], data["greedy_logits_actq"]
    for mode, step in (("float", FLOAT_LOGIT_STEP), ("kv", KV_LOGIT_STEP)):
        for name in (f"logits_{mode}", f"greedy_logits_{mode}"):
            data |= fixed_point(name, data.pop(name), step)
    np.savez_compressed(target, **data)


def fixed_point(name: str, values: npt.NDArray[np.float32], step: float) -> dict[str, npt.NDArray[Any]]:
    """`values` as multiples of `step`: the numbers' bytes, all lowest ones first, as they compress best."""
    whole = np.rint(values.astype(np.float64) / step).astype("<i4")
    size = next(n for n in (2, 3, 4) if np.abs(whole).max() < 1 << (8 * n - 1))
    planes = np.moveaxis(whole[..., None].view(np.uint8)[..., :size], -1, 0)
    return {name: np.ascontiguousarray(planes), f"step of {name}": np.float64(step)}


def in_planes(content: bytes, parts: list[tuple[int, int]]) -> dict[str, npt.NDArray[Any]]:
    """`content` for an .npz file. `parts`, each of so many bytes in blocks of so many, make up the whole. Of
    a part all first bytes of its blocks come first, which compresses best."""
    held = np.frombuffer(content, np.uint8)
    ends = np.cumsum([length for length, _ in parts])
    assert ends[-1] == len(held)
    pieces = np.split(held, ends[:-1])
    planes = [piece.reshape(-1, block).T.reshape(-1) for piece, (_, block) in zip(pieces, parts, strict=True)]
    return {"parts": np.array(parts, np.int64), "planes": np.concatenate(planes)}


def store_model(source: Path, target: Path) -> None:
    """A model file in planes, each tensor by its type's blocks."""
    content, parts, at = source.read_bytes(), [], 0
    for tensor in sorted(GGUFReader(source).tensors, key=lambda tensor: int(tensor.data_offset)):
        start, length = int(tensor.data_offset), int(tensor.n_bytes)
        parts += [(start - at, 1), (length, BLOCK_BYTES[tensor.tensor_type.name])]
        at = start + length
    parts.append((len(content) - at, 1))
    np.savez_compressed(target, **in_planes(content, parts))


def store_cache_file(source: Path, target: Path) -> None:
    """A file that holds mostly 32-bit numbers, in planes."""
    content = source.read_bytes()
    tail = len(content) % 4
    np.savez_compressed(target, **in_planes(content, [(len(content) - tail, 4), (tail, 1)]))


def reduce_layers(source: Path, target: Path) -> None:
    """Keep the first 144 positions whole (both kinds of compressed row appear) and the last ones' dumps.

    The output of the last layer feeds no other layer, so every fourth position of it is enough.
    """
    data = dict(np.load(source))
    streams = data.pop("hc_after_layer_kv")
    positions = np.arange(144)
    data |= fixed_point("hc_after_layer_kv", streams[:-1, positions], STREAM_STEP)
    data |= fixed_point("hc_after_last_layer_kv", streams[-1, positions[::4]], STREAM_STEP)
    data["hc_after_layer_last_kv"] = streams[:, -1]
    np.savez_compressed(target, **data)


def reduce_continuation(source: Path, target: Path) -> None:
    data = dict(np.load(source))
    data["argmax_actq"] = data.pop("logits_actq").argmax(axis=1).astype(np.int32)
    np.savez_compressed(target, **data)


def splice(base: Path, whole: Path, target: Path) -> None:
    """Store `whole` as the pieces that differ from `base`: rows (source, offset, bytes), source 0 = base."""
    theirs, ours = GGUFReader(base), GGUFReader(whole)
    base_bytes, whole_bytes = base.read_bytes(), whole.read_bytes()
    base_offset = {tensor.name: int(tensor.data_offset) for tensor in theirs.tensors}
    tensors = sorted(ours.tensors, key=lambda tensor: int(tensor.data_offset))
    starts = [int(tensor.data_offset) for tensor in tensors] + [len(whole_bytes)]
    pieces, own, parts = [(1, 0, starts[0])], [whole_bytes[: starts[0]]], [(starts[0], 1)]
    stored = starts[0]
    for tensor, start, end in zip(tensors, starts, starts[1:], strict=False):
        chunk, there = whole_bytes[start:end], base_offset[tensor.name]
        if base_bytes[there : there + len(chunk)] == chunk:
            pieces.append((0, there, len(chunk)))
        else:
            pieces.append((1, stored, len(chunk)))
            own.append(chunk)
            parts.append((len(chunk), BLOCK_BYTES[tensor.tensor_type.name]))
            stored += len(chunk)
    np.savez_compressed(target, pieces=np.array(pieces, np.int64), **in_planes(b"".join(own), parts))


def main(full: Path, target: Path) -> None:
    (target / "kv").mkdir(parents=True, exist_ok=True)
    for name in WHOLE:
        shutil.copyfile(full / name, target / name)
    for name in MODELS:
        store_model(full / name, target / f"{name}.npz")
    for file in (full / "kv").glob("*.kv"):
        store_cache_file(file, target / "kv" / f"{file.name}.npz")
    for file in (full / "kv").glob("continue-*.npz"):
        reduce_continuation(file, target / "kv" / file.name)
    for name in LOGITS + PRO_LOGITS:
        reduce_logits(full / f"logits-{name}.npz", target / f"logits-{name}.npz")
    reduce_layers(full / "layers-tiny-q2-medium.npz", target / "layers-tiny-q2-medium.npz")
    splice(full / "tiny-q2.gguf", full / "tiny-q4.gguf", target / "tiny-q4-pieces.npz")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
