"""Tests that need a tool are skipped where it is missing, but for CI, which says so by DS4_CI=1."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import partial

import pytest

from tests.cuda.nvrtc import library_path
from tests.ksim import clang_missing


def mlx_missing() -> str | None:
    try:
        importlib.import_module("mlx.core")
    except ImportError as reason:
        return str(reason)
    return None


def nvrtc_missing(major: int) -> str | None:
    return None if library_path(major) else f"NVRTC {major} is not installed"


TOOLS: dict[str, Callable[[], str | None]] = {
    "clang": clang_missing,
    "mlx": mlx_missing,
    "nvrtc-12": partial(nvrtc_missing, 12),
    "nvrtc-13": partial(nvrtc_missing, 13),
}


@pytest.mark.skipif(os.environ.get("DS4_CI") != "1", reason="only CI must have all tools")
@pytest.mark.parametrize("tool", TOOLS)
def test_ci_has_every_tool(tool: str) -> None:
    assert TOOLS[tool]() is None
