"""What saved states cost and what they save: throughput, lookups, and the tokens prefilled twice.

Run it with `python bench/kv_store.py [--json] [--quick]`. Throughput is a ratio to a plain copy of the same
bytes in the same run. `--quick` takes sizes that prove only that everything still runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import kv_lookup, kv_throughput, kv_traces
from tests.support.synthetic_session import SMALL


def run(folder: Path, *, quick: bool) -> dict[str, Any]:
    """All results. `folder` takes a few hundred MB, and gets them back."""
    lengths, rounds, shape = ((600, 700), 2, SMALL) if quick else ((2048, 10240), 9, kv_throughput.FLASH)
    counts = (10, 100) if quick else (10, 1_000, 10_000)
    return {
        "throughput": [kv_throughput.measure(folder, tokens, rounds, shape) for tokens in lengths],
        "lookup": [kv_lookup.measure(folder / f"lookup-{count}", count) for count in counts],
        "traces": kv_traces.measure(folder, turns=3 if quick else 12),
    }


def lines(results: dict[str, Any]) -> list[str]:
    """The results as text, each part with its verdict."""
    return [
        *kv_throughput.lines(results["throughput"]),
        *kv_lookup.lines(results["lookup"]),
        *kv_traces.lines(results["traces"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="small sizes: a check, not a measurement")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ds4-bench-") as folder:
        results = run(Path(folder), quick=arguments.quick)
    print(json.dumps(results, indent=1) if arguments.json else "\n".join(lines(results)))


if __name__ == "__main__":
    main()
