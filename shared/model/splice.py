"""A model file of two: some layers' routed experts from a donor, all else from a base. Spec: apps §8.3.

Owns which tensors are taken from where, the checks that the two are the same model, and the streaming of the
new file. Nothing is quantised anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shared.errors import ModelFileError, UsageError
from shared.gguf.directory import TensorInfo
from shared.gguf.mapping import shown
from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType
from shared.gguf.writer import TensorData, append_directory, write_tensors
from shared.model.open import ModelFile

# Called with (bytes written, bytes in all) of tensor data.
ByteProgress = Callable[[int, int], None]

_CHUNK = 4 << 20
_EXPERTS = ("ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight")
# Every recipe leaves these of a layer as they are, so two files of one model have them byte for byte.
_SAME_IN_ALL_RECIPES = (
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "exp_probs_b.bias",
    "ffn_norm.weight",
)


@dataclass(frozen=True, slots=True)
class SplicePlan:
    """What `write_splice` will do. `taken` are the donor's tensors, in file order; sizes are of tensor data
    in bytes, the padding between them not counted."""

    base: GgufFile
    donor: GgufFile
    taken: tuple[TensorInfo, ...]

    @property
    def base_bytes(self) -> int:
        return sum(info.nbytes for info in self.base.tensors.values())

    @property
    def new_bytes(self) -> int:
        return self.base_bytes + self.delta

    @property
    def delta(self) -> int:
        """Bytes that the new file has more than the base."""
        return sum(info.nbytes - self.base.tensors[info.name].nbytes for info in self.taken)

    @property
    def donor_bytes(self) -> int:
        return sum(info.nbytes for info in self.taken)


def parse_layers(text: str, layer_count: int) -> tuple[int, ...]:
    """The layers of a list such as `3,37-42`, ascending. Raises UsageError."""
    layers: set[int] = set()
    for part in text.split(","):
        ends = [end.strip() for end in part.split("-")]
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() and len(end) <= 6 for end in ends):
            raise UsageError(f"{shown(part)} is no layer and no range of layers: write for example 3,37-42")
        first, last = int(ends[0]), int(ends[-1])
        if not first <= last < layer_count:
            raise UsageError(f"{shown(part)} is no range within the model's layers 0-{layer_count - 1}")
        layers.update(range(first, last + 1))
    return tuple(sorted(layers))


def plan_splice(base: ModelFile, donor: ModelFile, layers: Sequence[int]) -> SplicePlan:
    """Check that both files are the same model in two recipes. Raises ModelFileError with the first
    difference that forbids it."""
    ours, theirs = base.gguf, donor.gguf
    if base.shape != donor.shape:
        raise _mismatch(ours, theirs, "they have different shapes")
    if ours.alignment != theirs.alignment:
        raise _mismatch(ours, theirs, f"they are aligned to {ours.alignment} and {theirs.alignment} bytes")
    if len(ours.tensors) != len(theirs.tensors):
        raise _mismatch(ours, theirs, f"they have {len(ours.tensors)} and {len(theirs.tensors)} tensors")
    for name, info in ours.tensors.items():
        other = theirs.tensors.get(name)
        if other is None:
            raise _mismatch(ours, theirs, f"the second lacks the tensor {shown(name)}")
        if other.dims != info.dims:
            raise _mismatch(ours, theirs, f"the tensor {shown(name)} has other dimensions in each")
        if TensorType.UNKNOWN in (info.type, other.type):
            raise _mismatch(
                ours, theirs, f"the tensor {shown(name)} has an unknown type, and so no known size"
            )
    wanted = {f"blk.{layer}.{name}" for layer in layers for name in _EXPERTS}
    for layer in layers:
        _check_same_weights(ours, theirs, layer)
    return SplicePlan(ours, theirs, tuple(theirs.tensors[name] for name in ours.tensors if name in wanted))


def write_splice(
    plan: SplicePlan, path: str | os.PathLike[str], progress: ByteProgress = lambda _done, _total: None
) -> None:
    """Write the new file, which appears under its name only when it is complete and on disk.

    Memory stays at a few megabytes. Raises OSError; then nothing is left behind.
    """
    done, total = 0, plan.new_bytes
    taken = {info.name for info in plan.taken}

    def stream(file: GgufFile, name: str) -> Iterator[memoryview]:
        nonlocal done
        data = file.data(name)
        for start in range(0, data.size, _CHUNK):
            piece = data[start : start + _CHUNK]
            yield piece.data
            done += piece.size
            progress(done, total)

    tensors = []
    for name in plan.base.tensors:
        source = plan.donor if name in taken else plan.base
        info = source.tensors[name]
        tensors.append(TensorData(name, info.type, info.dims, partial(stream, source, name)))
    head = plan.base.header()[: plan.base.metadata_end].tobytes()
    header = append_directory(head, tensors, plan.base.alignment)
    write_tensors(Path(path), header, tensors, plan.base.alignment)


def _check_same_weights(base: GgufFile, donor: GgufFile, layer: int) -> None:
    for suffix in _SAME_IN_ALL_RECIPES:
        name = f"blk.{layer}.{suffix}"
        if name not in base.tensors or base.tensors[name].type is not donor.tensors[name].type:
            continue
        if base.data(name).data != donor.data(name).data:
            raise _mismatch(base, donor, f"the tensor '{name}' has other numbers in each")


def _mismatch(base: GgufFile, donor: GgufFile, why: str) -> ModelFileError:
    return ModelFileError(
        f"{shown(str(base.path))} and {shown(str(donor.path))} are not the same model: {why}"
    )
