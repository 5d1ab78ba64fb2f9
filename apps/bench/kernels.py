"""`ds4 bench --kernels`: what was measured of each kernel, as CSV or JSON, and the sum for a token.

Knows records of measurements; neither backends nor devices.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, TextIO

from apps.console import sayer
from shared.errors import UsageError

COLUMNS = (
    "tokens",
    "context",
    "operation",
    "use",
    "runs_as",
    "times",
    "bytes",
    "microseconds",
    "gb_per_second",
    "floor_microseconds",
    "ratio",
)
# A decode step completes a window of every compression ratio only at these contexts.
WINDOW = 128

# The options of `ds4 bench` that have an effect; all numbers are random, of Flash's shapes.
OPTIONS = ("--kernels", "--backend", "--ctx-max", "--prefill-chunk", "--csv", "--json")

Record = dict[str, Any]


def check_kernel_options(given: Iterable[str], backend: str, context: int, prefill_chunk: int | None) -> None:
    """Raises UsageError for what does not go with `--kernels`, be it an option `given` that has no effect."""
    for option in given:
        if option not in OPTIONS:
            raise UsageError(f"--kernels takes no {option}: it goes with {', '.join(OPTIONS[1:])}")
    if backend not in ("auto", "mlx"):
        raise UsageError(f"--kernels are those of --backend mlx, not {backend}")
    if context % WINDOW:
        raise UsageError(f"with --kernels --ctx-max must be a multiple of {WINDOW}, not {context}")
    if prefill_chunk is not None and not 1 < prefill_chunk <= context:
        raise UsageError(f"with --kernels --prefill-chunk must lie between 2 and --ctx-max {context}")


def write_kernel_times(
    records: Iterable[Record],
    output: TextIO,
    *,
    as_json: bool,
    say: Callable[[str], None] | None = None,
) -> None:
    """Each record as it comes, or one JSON object at the end; sums go to `say`, by default stderr."""
    say = say or sayer("ds4.timing")
    rows: list[Record] = []
    table = csv.writer(output, lineterminator="\n")
    if not as_json:
        table.writerow(COLUMNS)
    for record in records:
        rows.append(_row(record))
        if not as_json:
            table.writerow([_cell(rows[-1][name]) for name in COLUMNS])
            output.flush()
        say(
            f"{record['operation']}, {record['use']}: {rows[-1]['microseconds']:.1f} us, "
            f"{record['gb_per_second']:.0f} GB/s, {record['ratio']:.2f} times the floor"
        )
    steps = [step_sum(list(group)) for _, group in groupby(rows, lambda row: (row["tokens"], row["context"]))]
    if as_json:
        bandwidth = rows[0]["copy_gb_per_second"] if rows else None
        print(
            json.dumps({"copy_gb_per_second": bandwidth, "steps": steps, "rows": rows}, indent=2), file=output
        )
    for step in steps:
        say(
            f"step of {step['tokens']} at {step['context']} tokens, all layers: "
            f"{step['milliseconds']:.2f} ms, {step['tokens_per_second']:.2f} t/s; at the measured copy "
            f"bandwidth of {step['copy_gb_per_second']:.0f} GB/s {step['floor_milliseconds']:.2f} ms"
        )


def step_sum(rows: list[Record]) -> Record:
    """Of one step's rows, each as often as a step has it. Launches overlap as the device lets them: how long
    one waits for the next is in no row."""
    spent = sum(row["microseconds"] * row["times"] for row in rows) / 1e3
    floor = sum(row["floor_microseconds"] * row["times"] for row in rows) / 1e3
    tokens = rows[0]["tokens"]
    return {
        "tokens": tokens,
        "context": rows[0]["context"],
        "milliseconds": spent,
        "floor_milliseconds": floor,
        "tokens_per_second": tokens * 1e3 / spent if spent > 0 else 0.0,
        "copy_gb_per_second": rows[0]["copy_gb_per_second"],
    }


def _row(record: Record) -> Record:
    kept = {name: value for name, value in record.items() if not name.endswith("_seconds")}
    return kept | {
        "microseconds": record["kernel_seconds"] * 1e6,
        "floor_microseconds": record["floor_seconds"] * 1e6,
    }


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
