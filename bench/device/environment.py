"""What this machine has, and what is missing. Needs nothing but Python itself.

Must not know: what is measured.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import subprocess
import sys
from typing import Any

OLDEST_PYTHON = (3, 11)
# Module -> the package that brings it.
NEEDED = {
    "numpy": "numpy",
    "tokenizers": "tokenizers",
    "pytest": "pytest",
    "cupy": "cupy-cuda12x, or cupy-cuda13x for a driver of CUDA 13",
}
_QUESTION = "name,driver_version,memory.total,memory.used,clocks.max.sm,clocks.max.mem,power.limit"


def missing(*, simulate: bool = False) -> list[str]:
    """One line for each thing that is missing. A simulation needs no CuPy, but the simulator's compiler."""
    found = []
    if sys.version_info < OLDEST_PYTHON:
        found.append(f"Python {platform.python_version()} is too old: 3.11 or later is needed")
    for module, package in NEEDED.items():
        if simulate and module == "cupy":
            continue
        try:
            importlib.import_module(module)
        except ImportError as error:
            found.append(f"{module} cannot be imported ({error}): install {package}")
    if not found:
        reason = _why_no_gpu(simulate)
        found += [reason] if reason else []
    return found


def _why_no_gpu(simulate: bool) -> str | None:
    if simulate:
        from tests.ksim import clang_missing

        return clang_missing()
    from ds4cuda.availability import why_unavailable

    return why_unavailable()


def description() -> dict[str, Any]:
    """The machine, its packages and the commit, as far as they can be told."""
    packages = {}
    for name in ("numpy", "tokenizers", "pytest", "cupy-cuda12x", "cupy-cuda13x", "nvidia-cuda-nvrtc-cu12"):
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": packages,
        "commit": _output("git", "rev-parse", "HEAD"),
        "changed files": len((_output("git", "status", "--porcelain") or "").splitlines()),
        "gpu": _output("nvidia-smi", f"--query-gpu={_QUESTION}", "--format=csv,noheader"),
    }


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
