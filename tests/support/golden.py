"""Paths and loaders of the golden data (tests/golden/README.md says what each file holds)."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

GOLDEN = Path(__file__).parents[1] / "golden"
_STEP = "step of "  # before the name of an array that is kept in fixed point
_SHA256 = {
    "tiny-q2.gguf": "a9d77304ab746ea01eed993b4ef13aed33fcea898baa49fae3d0f292249a850e",
    "tiny-q4.gguf": "36007fb89464b0f07c69283602f7f09aa66fa2ea2dbb58a6e6dc3995766f230d",
    "tiny-pro-q2.gguf": "2397fb1762c7d5031d3013d298ec40ef27f18c8985c2e2c5f7509018554eb98d",
    "27982986a0366fafd831be014f60507faa005a4c.kv": (
        "8057f7877e1ef4d59c3ec93e9ff59a546f74fff3396f6202cb1c985bda243950"
    ),
    "f4f1518741098785b31964733668e608b345b2a8.kv": (
        "31d3803102f9d8a15c99c85853e1816c5d4cc147af7673bc51e400212e233737"
    ),
}


@cache
def tiny_q2() -> Path:
    """The Flash-like test model with IQ2_XXS/Q2_K experts."""
    return _made("tiny-q2.gguf", "models", lambda: _stored("tiny-q2.gguf.npz"))


@cache
def tiny_q4() -> Path:
    """The same model with Q4_K experts, put together from `tiny_q2` and its own pieces."""

    def content() -> bytes:
        sources = (tiny_q2().read_bytes(), _stored("tiny-q4-pieces.npz"))
        pieces = golden_arrays("tiny-q4-pieces.npz")["pieces"]
        return b"".join(sources[source][at : at + size] for source, at, size in pieces)

    return _made("tiny-q4.gguf", "models", content)


@cache
def tiny_pro() -> Path:
    """The PRO-like test model (no window-only layers, 8 heads, 12 experts)."""
    return _made("tiny-pro-q2.gguf", "models", lambda: _stored("tiny-pro-q2.gguf.npz"))


@cache
def cache_folder() -> Path:
    """A folder with the two cache files of the C engine's server, and nothing else. Only for reading."""
    files = [
        _made(name, "kv", lambda: _stored(f"kv/{name}.npz"))  # noqa: B023 - called at once
        for name in _SHA256
        if name.endswith(".kv")
    ]
    return files[0].parent


def model_path(name: str) -> Path:
    """The file of `tiny-q2`, `tiny-q4` or `tiny-pro-q2`."""
    return {"tiny-q2": tiny_q2, "tiny-q4": tiny_q4, "tiny-pro-q2": tiny_pro}[name]()


@cache
def golden_logits(model: str, prompt: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of `logits-<model>-<prompt>.npz`."""
    return golden_arrays(f"logits-{model}-{prompt}.npz")


@cache
def golden_arrays(name: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file, such as `vectors.npz` or `kv/continue-cold.npz`."""
    with np.load(GOLDEN / name) as data:
        held = dict(data)
    for key in [key for key in held if key.startswith(_STEP)]:
        of = key.removeprefix(_STEP)
        held[of] = _from_fixed_point(held[of], float(held.pop(key)))
    return held


@cache
def golden_json(name: str) -> Any:
    """A parsed .json file, such as `prompts.json` or `kv/kv.json`."""
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def _from_fixed_point(planes: npt.NDArray[np.uint8], step: float) -> npt.NDArray[np.float32]:
    """The numbers whose bytes, all lowest ones first, are `planes`."""
    whole = np.zeros(planes.shape[1:], np.int64)
    for number, plane in enumerate(planes):
        whole |= plane.astype(np.int64) << (8 * number)
    sign = np.int64(1) << (8 * len(planes) - 1)
    return (((whole ^ sign) - sign) * step).astype(np.float32)


def _stored(name: str) -> bytes:
    """The bytes of a file that is kept in planes: see `in_planes` of tests/golden/reduce.py."""
    with np.load(GOLDEN / name) as data:
        parts, planes = data["parts"], data["planes"]
    pieces = np.split(planes, np.cumsum(parts[:, 0])[:-1])
    blocks = (
        piece.reshape(int(block), -1).T.tobytes() for piece, block in zip(pieces, parts[:, 1], strict=True)
    )
    return b"".join(blocks)


def _made(name: str, folder: str, content: Callable[[], bytes]) -> Path:
    """A file that is made once per machine, and again if it is not what it must be."""
    path = Path(tempfile.gettempdir()) / f"ds4-tests-{os.getuid()}-golden" / folder / name
    if not (path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == _SHA256[name]):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = content()
        assert hashlib.sha256(made).hexdigest() == _SHA256[name], f"the golden {name} is not what it was"
        with tempfile.NamedTemporaryFile(dir=path.parent.parent, delete=False) as file:
            file.write(made)
        os.replace(file.name, path)
    return path
