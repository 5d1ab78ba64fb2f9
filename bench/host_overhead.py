"""What a decode step costs the host: operations per step, time to build them, and what look-ahead hides.

Run it with `python bench/host_overhead.py [--json]`. The graph has Flash's 43 layers and tiny dimensions, so
that the numbers are those of the graph and not of the arithmetic. Not measured are submission to a GPU, and
steps with kernels or with experts kept as blocks: the CPU cannot run the ones and would expand the others.
On the CPU there is little for look-ahead to hide behind: MLX runs a step there while it is submitted, all but
its last hundred operations.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import mlx.core as mx

from bench.flash_graph import flash_graph
from ds4mlx.model import Model
from ds4mlx.session import MlxSession
from shared.power import PowerGovernor
from shared.sampling import GREEDY

# Primitives that only describe existing memory anew. All others are launches.
VIEWS = frozenset(
    {"AsStrided", "Broadcast", "ExpandDims", "Flatten", "Reshape", "Slice"}
    | {"Split", "Squeeze", "Transpose", "Unflatten", "View"}
)
CONTEXT = 4096
PROMPT = 1020  # more compressed rows than are selected, and the next token's step completes no window
STEPS = 16
ROUNDS = 3
BUILDS = 20
REAL_WAIT = 1e-4  # seconds; to find nothing running takes a tenth of it


def primitives(model: Model, position: int) -> Counter[str]:
    """Primitives of the decode step at `position` by name. Nothing is computed."""
    state = model.open_state(CONTEXT)
    state.position = position
    found: Counter[str] = Counter()

    def collect(entry: dict[str, Any]) -> None:
        if entry.get("type") == "primitive":
            found[entry["name"]] += 1

    def step(token: mx.array) -> list[mx.array]:
        result = model.forward(token, state)
        state.advance(result)
        return [result.logits, *state.arrays()]

    mx.export_function(collect, step, mx.array([5], mx.int32))
    return found


def launches(found: Counter[str]) -> int:
    return sum(count for name, count in found.items() if name not in VIEWS)


def mean_launches(model: Model) -> dict[str, float]:
    """Of the three kinds of step, and over the 128 steps in which they occur 96, 31 and 1 times."""
    start = PROMPT // 128 * 128
    plain, short, both = (launches(primitives(model, start + at)) for at in (0, 3, 127))
    mean = (96 * plain + 31 * short + both) / 128
    return {"no window": plain, "ratio-4 windows": short, "all windows": both, "mean": round(mean, 1)}


def build_seconds(model: Model) -> float:
    """Least time to build one step while it is traced, which is how kernels can be built without Metal.
    Submitting it is not in it."""
    times = []

    def step(token: mx.array) -> list[mx.array]:
        state = model.open_state(CONTEXT)
        state.position = PROMPT
        started = time.perf_counter()
        result = model.forward(token, state)
        state.advance(result)
        times.append(time.perf_counter() - started)
        return [result.logits, *state.arrays()]

    for _ in range(BUILDS):
        mx.export_function(lambda entry: None, step, mx.array([5], mx.int32))
    return min(times)


@contextmanager
def timed_waits() -> Iterator[list[float]]:
    """Seconds of each wait for the step before, which the session makes when the next one is built."""
    waits: list[float] = []
    synchronize = mx.synchronize

    def timed() -> None:
        started = time.perf_counter()
        synchronize()
        waits.append(time.perf_counter() - started)

    mx.synchronize = timed
    try:
        yield waits
    finally:
        mx.synchronize = synchronize


def decode(session: MlxSession, *, look_ahead: bool) -> tuple[float, float]:
    """Wall time of a greedy step, and the share of steps that were built before the last one was done."""
    picked = session.pick(GREEDY)
    picked.value()
    started = time.perf_counter()
    with timed_waits() as waits:
        for _ in range(STEPS):
            if look_ahead:
                session.submit(picked)
                picked.value()
            else:
                session.submit(picked.value())
            picked = session.pick(GREEDY)
        picked.value()
    # The first step finds nothing running.
    hidden = sum(wait > REAL_WAIT for wait in waits[1:]) / (STEPS - 1)
    return (time.perf_counter() - started) / STEPS, hidden


def graph(model: Model) -> dict[str, Any]:
    counts = primitives(model, PROMPT)
    return {
        "primitives": sum(counts.values()),  # of a step that completes no window
        "launches": mean_launches(model),
        "most frequent": dict(counts.most_common(12)),
        "python build ms": round(build_seconds(model) * 1e3, 2),
    }


def steps(model: Model) -> dict[str, Any]:
    session = MlxSession(model, CONTEXT, CONTEXT, PowerGovernor())
    session.sync([token % model.shape.vocabulary_size for token in range(PROMPT)])
    runs = [(decode(session, look_ahead=False), decode(session, look_ahead=True)) for _ in range(ROUNDS)]
    session.close()
    return {
        "step ms": round(min(plain[0] for plain, _ in runs) * 1e3, 2),
        "step ms with look-ahead": round(min(ahead[0] for _, ahead in runs) * 1e3, 2),
        "share hidden by look-ahead": round(statistics.median(ahead[1] for _, ahead in runs), 2),
    }


def print_table(results: dict[str, dict[str, Any]], write: Callable[[str], None] = print) -> None:
    for title, result in results.items():
        write(f"{title}, on {mx.default_device()}")
        for name, value in result.items():
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
            write(f"  {name:<40} {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    expanded = flash_graph(raw=False)
    results = {
        "kernels": graph(flash_graph(raw=True, kernels=True)),
        "plain operations, experts kept as blocks": graph(flash_graph(raw=True)),
        "plain operations, experts expanded": {**graph(expanded), **steps(expanded)},
    }
    if arguments.json:
        print(json.dumps(results, indent=1))
    else:
        print_table(results)


if __name__ == "__main__":
    main()
