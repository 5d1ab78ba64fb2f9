"""Run every step on this machine's GPU, tell what was found, and keep it in one JSON file."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.device import environment
from bench.device.report import failures, lines
from bench.device.results import Results, read

ROOT = Path(__file__).parents[2]
_SAID = 2000  # characters of what a failed step printed


def main() -> int:
    given = _arguments()
    missing = environment.missing(simulate=given.simulate)
    for line in missing:
        print(f"missing: {line}", file=sys.stderr)
    if missing:
        return 1
    from bench.device.steps import SECONDS

    results = Results(given.output)
    results.put("began", value=datetime.now(UTC).isoformat(timespec="seconds"))
    results.put("simulated", value=given.simulate)
    results.put("machine", value=environment.description())
    ends = time.monotonic() + given.minutes * 60
    for name in given.steps or SECONDS:
        left = ends - time.monotonic()
        if left < 5:
            results.put("steps", name, value={"state": "no time was left"})
            print(f"{name}: no time was left", flush=True)
            continue
        print(f"{name} ...", flush=True)
        found = _run_step(name, given, min(SECONDS[name], left))
        results.put("steps", name, value=found)
        print(*lines(name, found), sep="\n", flush=True)
    print(f"everything is in {given.output}")
    steps = results.values["steps"].items()
    bad = [name for name, step in steps if step["state"] != "done" or failures(step)]
    if bad:
        print(f"not all of it ran well: {', '.join(bad)} (exit status 2)")
    return 2 if bad else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/device/run.sh", description=__doc__)
    parser.add_argument("--simulate", action="store_true", help="a small run in the simulator, without a GPU")
    parser.add_argument("--output", type=Path, default=Path("device-results.json"), metavar="FILE")
    parser.add_argument("--layers", type=int, default=0, help="of the full-size model (as many as fit)")
    parser.add_argument("--minutes", type=float, default=9, help="for all steps together (9)")
    parser.add_argument("--steps", nargs="+", metavar="STEP", help="only these (all)")
    parser.add_argument("--files", nargs="+", default=[], help="only these files of tests/cuda (all)")
    return parser.parse_args()


def _run_step(name: str, given: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """What a step found, its state and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = [sys.executable, "-m", "bench.device.steps", name, "--to", str(path)]
        command += ["--simulate"] * given.simulate + ["--layers", str(given.layers)]
        command += ["--files", *given.files] if given.files else []
        started = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
            )
            state = "done" if done.returncode == 0 else f"failed: {(done.stderr or done.stdout)[-_SAID:]}"
        except subprocess.TimeoutExpired:
            state = f"stopped after {seconds:.0f} s"
        return {"state": state, "seconds": round(time.monotonic() - started, 1), **read(path)}


if __name__ == "__main__":
    sys.exit(main())
