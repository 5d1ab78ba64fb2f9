"""What the cases of `--suite embedded` yield without a model, as the package has it on file.

`python -m bench.embedded_suite_baselines` computes it from the cases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

FILE = Path(__file__).parent / "embedded_baselines.json"


def read_baselines() -> dict[str, dict[str, float]]:
    """Baseline to ability to its share of right answers among all cases."""
    found: dict[str, dict[str, float]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def baseline_lines(baselines: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """One line for each baseline."""
    for name, shares in baselines.items():
        told = ", ".join(f"{ability} {100 * share:.1f} %" for ability, share in shares.items())
        yield f"without a model, {name}: {told}"
