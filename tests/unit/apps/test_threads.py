"""The limit of threads is set before NumPy is loaded, which reads it once."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from importlib import import_module
from apps import cli
name, *arguments = sys.argv[1:]
def told(count):
    print(count, "numpy" in sys.modules)
    sys.exit(0)
import_module(f"apps.{name}.command").limit_threads = told
cli.main([name, *arguments])
"""


@pytest.mark.parametrize("command", ["chat", "serve"])
def test_threads_are_limited_before_numpy_is_loaded(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, command, "-t", "3"], capture_output=True, text=True, check=False
    )
    assert done.stdout == "3 False\n", done.stderr
