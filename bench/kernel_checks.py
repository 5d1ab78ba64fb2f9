"""Checks of kernels on the device at hand, one kind and one operation at a time; prints one JSON object.

Run by `first_run.py` in processes of their own, since a kernel may take its process down:
`python bench/kernel_checks.py device`, `... examples OPERATION`, `... contract TEST_MODULE`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import mlx.core as mx
import numpy as np

from bench.first_run import contract_modules
from ds4mlx.arrays import arrays
from ds4mlx.kernels.difference import Incomparable, difference_of
from ds4mlx.kernels.kernel import Example, Maker
from ds4mlx.kernels.registry import OPERATIONS, digest, operation

LONGEST_MESSAGE = 2000  # characters; a compiler can say a lot
CASE_TABLES = ("CASES", "LONG_CASES")
Check = Callable[[Maker], None]


def device() -> dict[str, Any]:
    """MLX, its device, and which kernels these are. Device sizes in bytes."""
    found = {name: value for name, value in mx.device_info().items() if isinstance(value, (str, int))}
    return {
        "mlx": version("mlx"),
        "metal": mx.metal.is_available(),
        "default_device": str(mx.default_device()),
        "device_info": found,
        "kernels": digest(),
    }


def examples(name: str, maker: Maker) -> list[dict[str, Any]]:
    """Each example of an operation: by how much kernel and fallback differ, and whether the kernel gives the
    same bits twice."""
    found = []
    for example in operation(name).examples():
        entry: dict[str, Any] = {"label": example.label, "tolerance": example.tolerance}
        try:
            entry |= compared(example, maker)
        except Exception as reason:  # whatever a compiler or driver throws is what we want to know
            entry |= {"ok": False, "failure": message(reason)}
        found.append(entry)
    return found


def compared(example: Example, maker: Maker) -> dict[str, Any]:
    """Milliseconds of the first launch, which compiles, and of the second; differences in parts of the
    largest expected number, one for each result."""
    launch = example.build(maker)
    (first, first_time), (second, second_time) = (timed(launch, example.arguments) for _ in range(2))
    expected = list(arrays(example.fallback(*example.arguments)))
    differences = [difference(one, other) for one, other in zip(first, expected, strict=True)]
    same_bits = all(
        np.array(one).tobytes() == np.array(other).tobytes() for one, other in zip(first, second, strict=True)
    )
    return {
        "ok": same_bits and all(found is not None and found <= example.tolerance for found in differences),
        "differences": differences,
        "same_bits_again": same_bits,
        "milliseconds": [first_time, second_time],
    }


def timed(launch: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[list[mx.array], float]:
    started = time.perf_counter()
    found = list(arrays(launch(*arguments)))
    mx.eval(found)
    return found, round((time.perf_counter() - started) * 1e3, 3)


def difference(found: mx.array, expected: mx.array) -> float | None:
    """None where shapes, dtypes, or the places of infinities and NaN differ."""
    try:
        return difference_of(found, expected).relative
    except Incomparable:
        return None


def contract(checks: dict[str, Check], maker: Maker) -> list[dict[str, Any]]:
    """Each named check of a kernel against its independent reference."""
    found = []
    for name, check in checks.items():
        started = time.perf_counter()
        entry: dict[str, Any] = {"case": name, "ok": True}
        try:
            check(maker)
        except Exception as reason:
            entry |= {"ok": False, "failure": message(reason)}
        found.append(entry | {"milliseconds": round((time.perf_counter() - started) * 1e3, 1)})
    return found


def checks_of(module: str) -> dict[str, Check]:
    """Those of tests/kernels/MODULE.py, the long ones too."""
    found = importlib.import_module(f"tests.kernels.{module}")
    return {name: check for table in CASE_TABLES for name, check in getattr(found, table, {}).items()}


def message(reason: Exception) -> str:
    return f"{type(reason).__name__}: {str(reason)[:LONGEST_MESSAGE]}"


def arguments_of(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("device")
    kinds.add_parser("examples").add_argument("name", choices=OPERATIONS, metavar="OPERATION")
    kinds.add_parser("contract").add_argument("name", choices=contract_modules(), metavar="TEST_MODULE")
    return parser.parse_args(given)


def main(given: list[str]) -> None:
    chosen = arguments_of(given)
    maker: Any = mx.fast.metal_kernel
    result: Any
    if chosen.kind == "device":
        result = device()
    elif chosen.kind == "examples":
        result = examples(chosen.name, maker)
    else:
        result = contract(checks_of(chosen.name), maker)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
