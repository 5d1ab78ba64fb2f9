"""The tensor directory of a GGUF file: reading its entries and checking that they lie in the file, apart.

Knows nothing of metadata but the alignment, and nothing of models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from shared.gguf.cursor import Cursor, Malformed
from shared.gguf.mapping import shown
from shared.gguf.types import TensorType, block_bytes, block_elements, tensor_type

_MOST_ELEMENTS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One entry of the tensor directory. `dims` is in file order (the first is contiguous)."""

    name: str
    type: TensorType
    type_id: int  # the id in the file; differs from `type` only for UNKNOWN
    dims: tuple[int, ...]
    offset: int  # of the first byte, from the start of the file
    nbytes: int  # 0 for UNKNOWN


def read_directory(
    cursor: Cursor, count: int, alignment: int, problems: list[str], notes: list[str]
) -> dict[str, TensorInfo]:
    """Read `count` entries and check them all.

    Faults of single entries go to `problems`, unknown types to `notes`; a directory that cannot be read on
    is Malformed.
    """
    entries = [_entry(cursor, number, problems) for number in range(count)]
    start = -(-cursor.position // alignment) * alignment
    size = len(cursor.buffer)
    tensors: dict[str, TensorInfo] = {}
    cut_off: list[str] = []
    for entry in entries:
        name, end = shown(entry.name), start + entry.offset + entry.nbytes
        if entry.type is TensorType.UNKNOWN:
            notes.append(f"tensor {name} has the unknown type {entry.type_id}")
        if entry.offset % alignment:
            problems.append(
                f"tensor {name} starts at offset {entry.offset}, not a multiple of the alignment {alignment}"
            )
        if end > size:
            cut_off.append(f"the data of tensor {name} end at byte {end}, past the end of the file at {size}")
        if entry.name in tensors:
            problems.append(f"two tensors have the name {name}")
            continue
        tensors[entry.name] = replace(entry, offset=start + entry.offset)
    if cut_off:
        problems.append(
            f"the file is cut off or damaged: {len(cut_off)} of its {count} tensors reach past its end at "
            f"byte {size} (an unfinished download? `ds4 pull` resumes it)"
        )
        problems.extend(cut_off)
    problems.extend(_overlaps(tensors))
    return tensors


def tensor_bytes(type: TensorType, dims: tuple[int, ...]) -> int:
    """Bytes of a tensor's data, 0 for UNKNOWN. ValueError, with the reason, for impossible dimensions."""
    elements = prod(dims)
    if elements == 0:
        raise ValueError(f"has an empty dimension: {list(dims)}")
    if elements > _MOST_ELEMENTS:
        raise ValueError(f"has an absurd size: {list(dims)}")
    if type is TensorType.UNKNOWN:
        return 0
    if dims[0] % block_elements(type):
        raise ValueError(
            f"is {type.name} with rows of {dims[0]} elements, not a multiple of {block_elements(type)}"
        )
    return elements // block_elements(type) * block_bytes(type)


def _entry(cursor: Cursor, number: int, problems: list[str]) -> TensorInfo:
    """The entry at the cursor, its offset still relative to the data section."""
    name = cursor.name(f"the name of tensor {number}")
    what = f"the entry of tensor {shown(name)}"
    rank = cursor.u32(what)
    if not 1 <= rank <= 8:
        raise Malformed(f"tensor {shown(name)} has {rank} dimensions: 1 to 8 are possible")
    dims = tuple(cursor.u64(what) for _ in range(rank))
    type_id = cursor.u32(what)
    offset = cursor.u64(what)
    kind = tensor_type(type_id)
    try:
        nbytes = tensor_bytes(kind, dims)
    except ValueError as fault:
        nbytes = 0
        problems.append(f"tensor {shown(name)} {fault}")
    return TensorInfo(name, kind, type_id, dims, offset, nbytes)


def _overlaps(tensors: Mapping[str, TensorInfo]) -> list[str]:
    """Every tensor whose data begin before the end of the data in front of it."""
    problems = []
    end, owner = 0, ""
    for info in sorted(tensors.values(), key=lambda info: (info.offset, info.nbytes)):
        if info.nbytes and info.offset < end:
            problems.append(f"the data of tensors {shown(owner)} and {shown(info.name)} overlap")
        if info.offset + info.nbytes > end:
            end, owner = info.offset + info.nbytes, info.name
    return problems
