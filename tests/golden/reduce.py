"""How the golden data was reduced to the size kept here: `python tests/golden/reduce.py FULL TARGET`.

FULL is the folder with everything the C engine's run produced, TARGET the folder to write. The rules are
in README.md beside this file. Uses only NumPy and the `gguf` package, nothing of the project.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader

WHOLE = (
    "prompts.json",
    "tokenizer.json",
    "tokenizer-split.json",
    "tokenizer-only.gguf",
    "tiny-pro-q2.gguf",
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
    np.savez_compressed(target, **data)


def reduce_layers(source: Path, target: Path) -> None:
    """Keep the first 144 positions whole (both kinds of compressed row appear) and the last ones' dumps.

    The output of the last layer feeds no other layer, so every fourth position of it is enough.
    """
    data = dict(np.load(source))
    streams = data.pop("hc_after_layer_kv")
    positions = np.arange(144)
    data["hc_after_layer_kv"] = streams[:-1, positions]
    data["hc_after_last_layer_kv"] = streams[-1, positions[::4]]
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
    pieces, own = [(1, 0, starts[0])], [whole_bytes[: starts[0]]]
    stored = starts[0]
    for tensor, start, end in zip(tensors, starts, starts[1:], strict=False):
        chunk, there = whole_bytes[start:end], base_offset[tensor.name]
        if base_bytes[there : there + len(chunk)] == chunk:
            pieces.append((0, there, len(chunk)))
        else:
            pieces.append((1, stored, len(chunk)))
            own.append(chunk)
            stored += len(chunk)
    np.savez_compressed(target, pieces=np.array(pieces, np.int64), own=np.frombuffer(b"".join(own), np.uint8))


def main(full: Path, target: Path) -> None:
    (target / "kv").mkdir(parents=True, exist_ok=True)
    for name in WHOLE:
        shutil.copyfile(full / name, target / name)
    for file in (full / "kv").glob("*.kv"):
        shutil.copyfile(file, target / "kv" / file.name)
    for file in (full / "kv").glob("continue-*.npz"):
        reduce_continuation(file, target / "kv" / file.name)
    for name in LOGITS + PRO_LOGITS:
        reduce_logits(full / f"logits-{name}.npz", target / f"logits-{name}.npz")
    reduce_layers(full / "layers-tiny-q2-medium.npz", target / "layers-tiny-q2-medium.npz")
    splice(full / "tiny-q2.gguf", full / "tiny-q4.gguf", target / "tiny-q4-pieces.npz")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
