"""What `ds4 quantize --dry-run` prints: the plan, tensors of the same kind in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shared.gguf.types import TensorType
from shared.quantise.plan import PlannedTensor
from shared.quantise.run import Conversion


@dataclass(frozen=True, slots=True)
class _Row:
    kind: str
    layers: str
    dims: str
    change: str
    nbytes: int


def plan_lines(conversion: Conversion) -> Iterator[str]:
    """The plan for people: a line per kind of tensor and type, then the totals."""
    rows = _rows(conversion.plan)
    widths = [max(len(getattr(row, name)) for row in rows) for name in ("kind", "layers", "dims", "change")]
    for row in rows:
        cells = (row.kind, row.layers, row.dims, row.change)
        text = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        yield f"{text}  {size_text(row.nbytes):>9}"
    yield ""
    for type, count, nbytes in _by_type(conversion.plan):
        yield f"{type.name:<8} {count:>5} tensors  {size_text(nbytes):>9}"
    weighted = "with importances" if conversion.imatrix is not None else "without importances"
    yield f"{len(conversion.plan)} tensors, {size_text(conversion.offsets()[-1])} in all, {weighted}"


def plan_record(conversion: Conversion) -> dict[str, Any]:
    """The plan for programs: every tensor by itself."""
    return {
        "bytes": conversion.offsets()[-1],
        "metadata_bytes": len(conversion.header()),
        "imatrix": None if conversion.imatrix is None else str(conversion.imatrix.path),
        "tensors": [
            {
                "name": tensor.name,
                "from": tensor.dtype,
                "type": tensor.type.name,
                "dims": list(tensor.dims),
                "bytes": tensor.nbytes,
            }
            for tensor in conversion.plan
        ],
    }


def size_text(nbytes: int) -> str:
    """A number of bytes in the unit that suits it, as `81.3 GB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"


def _rows(plan: Sequence[PlannedTensor]) -> list[_Row]:
    groups: dict[tuple[str, str, str], list[PlannedTensor]] = {}
    for tensor in plan:
        kind = tensor.name.split(".", 2)[2] if tensor.name.startswith("blk.") else tensor.name
        change = f"{tensor.dtype} -> {tensor.type.name}"
        dims = " x ".join(str(size) for size in tensor.dims)
        groups.setdefault((kind, dims, change), []).append(tensor)
    return [
        _Row(kind, _layers(members), dims, change, sum(member.nbytes for member in members))
        for (kind, dims, change), members in groups.items()
    ]


def _layers(members: Sequence[PlannedTensor]) -> str:
    """Layers as ranges: `0-36`, or `2,4,6`, or nothing for a tensor outside the layers."""
    numbers = [int(member.name.split(".")[1]) for member in members if member.name.startswith("blk.")]
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    if len(parts) > 4:
        return f"{numbers[0]}..{numbers[-1]} ({len(numbers)})"
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _by_type(plan: Sequence[PlannedTensor]) -> list[tuple[TensorType, int, int]]:
    counts: Counter[TensorType] = Counter()
    sizes: Counter[TensorType] = Counter()
    for tensor in plan:
        counts[tensor.type] += 1
        sizes[tensor.type] += tensor.nbytes
    return [(type, counts[type], size) for type, size in sizes.most_common()]
