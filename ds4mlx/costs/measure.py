"""Times every kernel on the device at hand, on random weights of Flash's shapes, one layer of them at a time.

Must not know: the command line, how a table is printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from ds4mlx.costs.layer_workloads import Q2, ExpertTypes
from ds4mlx.costs.timing import KernelTime, Stopwatch
from ds4mlx.costs.trials import Trials
from ds4mlx.costs.workload import Moment
from ds4mlx.kernel_choice import KernelChoice
from ds4mlx.operations import make_operations
from shared.model.known_shapes import FLASH
from shared.model.shape import ModelShape


def why_unmeasurable(device: Any = mx) -> str | None:
    """None if there is something to time here, else one line that says why not and what would help."""
    if device.metal.is_available() and device.default_device() != device.Device(device.cpu):
        return None
    return (
        "--kernels times kernels as Metal runs them, on random weights of Flash's shapes, and there is no "
        "Metal here: use a Mac with Apple silicon (bench/kernels.md has what can be computed without one)"
    )


def measure(
    moments: list[Moment],
    choice: KernelChoice,
    stopwatch: Stopwatch,
    shape: ModelShape = FLASH,
    types: ExpertTypes = Q2,
) -> Iterator[dict[str, Any]]:
    """A record for each operation and use in each step, as soon as it is there. `kernel_seconds` are of one
    call, `floor_seconds` those in which this device, measured first, copies as many bytes."""
    bandwidth = stopwatch.copy_bandwidth()
    operations = make_operations(shape, choice.maker, rounds=True)
    statuses = {found.operation: found.status for found in choice.statuses}
    for moment in moments:
        trials = Trials(shape, operations, moment, types)
        for found in stopwatch.times(trials, bandwidth):
            yield {
                "tokens": moment.count,
                "context": moment.end,
                **_record(found),
                "runs_as": statuses[found.workload.operation],
                "copy_gb_per_second": bandwidth / 1e9,
            }


def _record(found: KernelTime) -> dict[str, Any]:
    work = found.workload
    return {
        "operation": work.operation,
        "use": work.use,
        "times": work.times,
        "bytes": work.bytes,
        "flops": work.flops,
        "kernel_seconds": found.seconds,
        "gb_per_second": found.bytes_per_second / 1e9,
        "floor_seconds": found.floor,
        "ratio": found.ratio,
    }
