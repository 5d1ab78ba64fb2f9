"""The tests of the kernels and of the tiny models on this GPU: one pytest for each file, several at a time.

A kernel that ends its process takes no other file along. Must not know: what the tests check.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.device.results import Results

ROOT = Path(__file__).parents[2]
_SAID = 1500  # characters of a failure that are kept
_OPTIONS = ("-q", "--confcutdir=tests/cuda", "-p", "no:cacheprovider", "-p", "no:warnings")


def test_files() -> list[str]:
    """Files of tests that can run on a GPU, those that take longest first."""
    from tests.cuda.on_device import ELSEWHERE

    files = [path for path in (ROOT / "tests" / "cuda").glob("test_*.py") if path.name not in ELSEWHERE]
    return [path.name for path in sorted(files, key=lambda path: (path.name != "test_golden.py", path.name))]


def run(files: Sequence[str], seconds: float, results: Results, *, simulate: bool = False) -> None:
    """Run these files for at most so many seconds. In simulation kernel tests get the arrays of the stand-in,
    and only those that are not long are run."""
    with tempfile.TemporaryDirectory() as folder:
        running: dict[str, tuple[subprocess.Popen[str], Path]] = {}
        waiting, ends, done = list(files), time.monotonic() + seconds, {}
        while waiting or running:
            while waiting and len(running) < _most_at_a_time(simulate):
                name = waiting.pop(0)
                running[name] = _started(name, Path(folder), simulate=simulate)
            late = time.monotonic() > ends
            for name, (process, report) in list(running.items()):
                if late:
                    process.kill()
                if late or process.poll() is not None:
                    process.wait()
                    done[name] = {"cut off": True} if late else _read(report, process)
                    del running[name]
                    results.put("files", name, value=done[name])
            if late:
                for name in waiting:
                    results.put("files", name, value={"not begun": True})
                waiting = []
            time.sleep(0.05)
    results.put("passed", value=sum(found.get("passed", 0) for found in done.values()))
    bad = [name for name, found in done.items() if found.get("failed") or not found.get("passed")]
    results.put("files that failed", value=sorted({*bad, *(set(files) - set(done))}))


def _most_at_a_time(simulate: bool) -> int:
    return 1 if simulate else max(1, min(8, (os.cpu_count() or 2) // 2))


def _started(name: str, folder: Path, *, simulate: bool) -> tuple[subprocess.Popen[str], Path]:
    report = folder / f"{name}.xml"
    module = "tests.cuda.bare_machine" if simulate else "pytest"
    marked = "not long" if simulate else "long or not long"
    command = [sys.executable, "-m", module, *_OPTIONS, "-m", marked, f"--junitxml={report}"]
    command += [f"--basetemp={folder / name.removesuffix('.py')}", f"tests/cuda/{name}"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "DS4_CUDA_DEVICE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, report


def _read(report: Path, process: subprocess.Popen[str]) -> dict[str, Any]:
    said = process.stderr.read() if process.stderr is not None else ""
    if not report.exists():
        return {"failed": {"the whole file": f"exit status {process.returncode}: {said[-_SAID:]}"}}
    cases = list(ET.parse(report).iter("testcase"))
    failed = {
        str(case.get("name")): (problem.text or "")[-_SAID:]
        for case in cases
        for problem in (*case.findall("failure"), *case.findall("error"))
    }
    skipped = sum(case.find("skipped") is not None for case in cases)
    seconds = round(sum(float(case.get("time", 0)) for case in cases), 1)
    passed = len(cases) - skipped - len(failed)
    return {"passed": passed, "skipped": skipped, "failed": failed, "seconds": seconds}
