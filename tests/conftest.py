"""Settings for the whole test suite."""

from __future__ import annotations

import os

from hypothesis import settings

# Threads of the NumPy reference only get in each other's way when tests share a machine. Before NumPy loads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# How long an example takes says more about the machine than about the code.
settings.register_profile("ds4", deadline=None)
settings.load_profile("ds4")
