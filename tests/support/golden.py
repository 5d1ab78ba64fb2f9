"""Paths and loaders of the golden data (tests/golden/README.md says what each file holds)."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

GOLDEN = Path(__file__).parents[1] / "golden"
_Q4_SHA256 = "36007fb89464b0f07c69283602f7f09aa66fa2ea2dbb58a6e6dc3995766f230d"


def tiny_q2() -> Path:
    """The Flash-like test model with IQ2_XXS/Q2_K experts; the package ships it as its built-in model."""
    return Path(__file__).parents[2] / "apps" / "models" / "tiny.gguf"


@cache
def tiny_q4() -> Path:
    """The same model with Q4_K experts, put together once per machine from `tiny_q2` and its own pieces."""
    path = Path(tempfile.gettempdir()) / f"ds4-tests-{os.getuid()}-{_Q4_SHA256[:12]}" / "tiny-q4.gguf"
    if not (path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == _Q4_SHA256):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        stored = np.load(GOLDEN / "tiny-q4-pieces.npz")
        sources = (tiny_q2().read_bytes(), stored["own"].tobytes())
        content = b"".join(sources[s][at : at + n] for s, at, n in stored["pieces"])
        assert hashlib.sha256(content).hexdigest() == _Q4_SHA256, "tiny.gguf is not the golden model"
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    return path


def tiny_pro() -> Path:
    """The PRO-like test model (no window-only layers, 8 heads, 12 experts)."""
    return GOLDEN / "tiny-pro-q2.gguf"


def model_path(name: str) -> Path:
    """The file of `tiny-q2`, `tiny-q4` or `tiny-pro-q2`."""
    return {"tiny-q2": tiny_q2, "tiny-q4": tiny_q4, "tiny-pro-q2": tiny_pro}[name]()


@cache
def golden_logits(model: str, prompt: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of `logits-<model>-<prompt>.npz`."""
    with np.load(GOLDEN / f"logits-{model}-{prompt}.npz") as data:
        return dict(data)


@cache
def golden_arrays(name: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of another .npz file, such as `vectors.npz` or `kv/continue-cold.npz`."""
    with np.load(GOLDEN / name) as data:
        return dict(data)


@cache
def golden_json(name: str) -> Any:
    """A parsed .json file, such as `prompts.json` or `kv/kv.json`."""
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))
