"""Writes bench/kernels.md: what the kernels of a step have to move and multiply, and the least time for it.

`python -m bench.kernels` rewrites the page. Everything on it is computed from the model's shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ds4mlx.costs.layer_workloads import Q2, Q4
from ds4mlx.costs.step_workloads import decode_moment, step_workloads
from ds4mlx.costs.workload import (
    BLOCK_BITS,
    KERNEL_BITS,
    MATMUL_BITS,
    Moment,
    Total,
    Workload,
    total,
)
from shared.model.known_shapes import FLASH, PRO

PAGE = Path(__file__).parent / "kernels.md"
CONTEXTS = (2048, 16384, 65536)
CHUNK = 4096


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    bandwidth: int  # GB/s, as Apple states it


MACHINES = (Machine("M4 Max", 546), Machine("M5 Max", 614), Machine("M3 Ultra", 819))
# Tokens/s of the C engine with q2 files as its authors published them: machine, context, generation. Prompts
# that they call short are taken as 512 tokens.
PUBLISHED = (
    (MACHINES[0], 2048, 26.76),
    (MACHINES[0], 16384, 25.57),
    (MACHINES[0], 65536, 22.92),
    (MACHINES[1], 512, 34.27),
    (MACHINES[1], 11707, 25.90),
    (MACHINES[2], 512, 36.86),
    (MACHINES[2], 11709, 27.39),
)
# The same of prefill, M4 Max.
PUBLISHED_PREFILL = ((16384, 277.04), (65536, 204.96))

Row = Sequence[object]


def page() -> str:
    parts = [
        _INTRODUCTION,
        "## A whole token\n\n" + _whole_tokens(),
        "## Dense Q8_0 matrices in three storages\n\n" + _storages(),
        *(
            f"## Decoding after {context:,} tokens, kernel by kernel\n\n{_kernels(context)}"
            for context in CONTEXTS
        ),
        "## Prefill\n\n" + _PREFILL + _prefill_sums(),
        *(
            f"### A chunk of {CHUNK:,} tokens that ends at {context:,}\n\n{_prefill(context)}"
            for context in (CHUNK, CONTEXTS[-1])
        ),
    ]
    return "\n".join(parts)


_INTRODUCTION = """\
# What the kernels cost at best

**Nothing on this page was measured on a Mac**, nor on any other GPU. It is computed from the shape of the
model by `python -m bench.kernels`, which writes this page. `ds4 bench --kernels` measures the same list
where there is Metal.

A floor is bytes by memory bandwidth. Counted are the bytes that an ideal kernel moves: each weight, each
cached row and each activation that an operation needs, once, in the storage that it has here, and what one
launch of an operation hands to its next. Not counted are what several threadgroups read again (it mostly
comes from a cache), writing rows into the state, looking up the embedding, choosing a token, and the time
that a launch waits for the one before. Activations may well stay in caches, so that floors of the small
operations are too high rather than too low: their true cost is a launch. Operations are multiply-adds of
products, attention, pooling and mixing, counted as two. Launches are our kernels and MLX's matrix products.
The model is Flash with experts in IQ2_XXS and Q2_K where nothing else is said.
"""

_PREFILL = """\
A chunk reads every expert once, so bytes are not what limits it but multiply-adds, for which no floor is
given: what the matrix units of these machines reach is not known here. Dense Q8_0 matrices go through
`mx.quantized_matmul`, at 10 bits a weight. Array operations between the kernels (SwiGLU of the shared
expert, groups laid side by side) are not counted.

"""


def _whole_tokens() -> str:
    lines: list[Row] = []
    for name, shape, types in (("Flash q2", FLASH, Q2), ("Flash q4", FLASH, Q4), ("PRO q2", PRO, Q2)):
        for context in CONTEXTS:
            whole = total(step_workloads(shape, decode_moment(context), types))
            times = [_floor_cell(whole.bytes, machine) for machine in MACHINES]
            launches = f"{whole.launches:.0f}"
            lines.append([name, f"{context:,}", _gb(whole.bytes), _giga(whole.flops), launches, *times])
    heads = ["model", "context", "GB", "GFLOP", "launches", *_bandwidths("ms (tokens/s)")]
    compared = [
        [
            machine.name,
            f"{context:,}",
            f"{published:.2f}",
            f"{_rate(context, machine):.1f}",
            f"{100 * published / _rate(context, machine):.0f} %",
        ]
        for machine, context, published in PUBLISHED
    ]
    return (
        f"{_table(heads, lines)}\n"
        "Beside them what the authors of the C engine published for q2 files, tokens/s. For MLX, plain\n"
        "ports are reported to generate 2 to 16 tokens/s where the C engine reaches 27 to 44.\n\n"
        + _table(
            ["machine", "context", "C engine, published", "floor of this page", "published of floor"],
            compared,
        )
    )


def _storages() -> str:
    whole = total(step_workloads(FLASH, decode_moment(CONTEXTS[1]), Q2))
    lines = [
        _storage_row(whole, name, bits)
        for name, bits in (
            ("blocks of the file, float16 scales", BLOCK_BITS),
            ("repacked, as our kernel reads it: float32 scales", KERNEL_BITS),
            ("repacked, as `mx.quantized_matmul` reads it: biases besides", MATMUL_BITS),
        )
    ]
    heads = [
        "storage",
        "bits a weight",
        "GB a token",
        *_bandwidths("ms"),
        *_bandwidths("whole token, tokens/s"),
    ]
    return (
        f"A token reads {whole.q8_0 / 1e9:.2f} billion Q8_0 weights; at a context of {CONTEXTS[1]:,} they\n"
        f"are {_percent(whole.q8_0 * KERNEL_BITS / 8, whole.bytes)} of all bytes. Decoding uses the middle\n"
        "line.\n\n" + _table(heads, lines)
    )


def _storage_row(whole: Total, name: str, bits: float) -> Row:
    dense = whole.q8_0 * bits / 8
    others = whole.bytes - whole.q8_0 * KERNEL_BITS / 8
    times = [f"{_milliseconds(dense, machine):.2f}" for machine in MACHINES]
    rates = [f"{1e3 / _milliseconds(dense + others, machine):.1f}" for machine in MACHINES]
    return [name, f"{bits:g}", _gb(dense), *times, *rates]


def _kernels(context: int) -> str:
    works = step_workloads(FLASH, decode_moment(context), Q2)
    whole = total(works)
    lines = [_kernel_row(work, whole) for work in works]
    floors = [f"{1e3 * _milliseconds(whole.bytes, machine):,.0f}" for machine in MACHINES]
    moved = [_mb(whole.weights), _mb(whole.rows), _mb(whole.activations)]
    lines.append(["all", "", "", f"{whole.launches:.1f}", *moved, _giga(whole.flops), *floors, "100 %"])
    heads = [
        "operation",
        "use",
        "calls",
        "launches",
        "MB weights",
        "MB cached rows",
        "MB activations",
        "GFLOP",
    ]
    return "Of a token, all layers together.\n\n" + _table([*heads, *_bandwidths("us"), "share"], lines)


def _kernel_row(work: Workload, whole: Total) -> Row:
    moved = [_mb(work.times * part) for part in (work.weights, work.rows, work.activations)]
    floors = [f"{1e3 * _milliseconds(work.bytes * work.times, machine):,.1f}" for machine in MACHINES]
    share = _percent(work.bytes * work.times, whole.bytes)
    calls, launches = f"{work.times:.4g}", f"{work.launches * work.times:.4g}"
    return [work.operation, work.use, calls, launches, *moved, _giga(work.flops * work.times), *floors, share]


def _prefill_sums() -> str:
    lines: list[Row] = []
    for context, published in PUBLISHED_PREFILL:
        whole = total(step_workloads(FLASH, Moment(context - CHUNK, CHUNK), Q2))
        each = whole.flops / CHUNK
        lines.append([f"{context:,}", _giga(each), f"{published:.2f}", f"{each * published / 1e12:.1f}"])
    heads = ["context", "GFLOP a token", "C engine on M4 Max, published tokens/s", "which is TFLOP/s"]
    return _table(heads, lines)


def _prefill(context: int) -> str:
    works = step_workloads(FLASH, Moment(context - CHUNK, CHUNK), Q2)
    whole = total(works)
    lines = [
        [
            work.operation,
            work.use,
            f"{work.times:.4g}",
            *_prefill_cells(work.bytes * work.times, work.flops * work.times),
            _percent(work.flops * work.times, whole.flops),
        ]
        for work in works
    ]
    lines.append(["all", "", "", *_prefill_cells(whole.bytes, whole.flops), "100 %"])
    heads = ["operation", "use", "calls", "GB", "GFLOP", "FLOP a byte", *_bandwidths("ms")]
    return _table([*heads, "share of FLOP"], lines)


def _prefill_cells(moved: float, flops: float) -> list[str]:
    times = [f"{_milliseconds(moved, machine):,.1f}" for machine in MACHINES]
    return [_gb(moved), f"{flops / 1e9:,.0f}", f"{flops / moved:.0f}", *times]


def _rate(context: int, machine: Machine) -> float:
    """Tokens/s of Flash q2 at the floor."""
    whole = total(step_workloads(FLASH, decode_moment(context), Q2))
    return 1e3 / _milliseconds(whole.bytes, machine)


def _milliseconds(moved: float, machine: Machine) -> float:
    return moved / machine.bandwidth / 1e6


def _floor_cell(moved: float, machine: Machine) -> str:
    spent = _milliseconds(moved, machine)
    return f"{spent:.2f} ({1e3 / spent:.1f})"


def _bandwidths(unit: str) -> list[str]:
    return [f"{unit} at {machine.bandwidth} GB/s" for machine in MACHINES]


def _gb(number: float) -> str:
    return f"{number / 1e9:.2f}"


def _mb(number: float) -> str:
    return f"{number / 1e6:,.2f}"


def _giga(number: float) -> str:
    return f"{number / 1e9:.2f}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %"


def _table(heads: Sequence[str], lines: Sequence[Row]) -> str:
    return "".join(f"| {' | '.join(str(cell) for cell in cells)} |\n" for cells in _ruled(heads, lines))


def _ruled(heads: Sequence[str], lines: Sequence[Row]) -> Iterator[Row]:
    yield heads
    yield ["---"] * len(heads)
    yield from lines


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
