"""`-t`: how many threads the numeric libraries of the host may start. They read it once, when loaded."""

from __future__ import annotations

import os

_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "RAYON_NUM_THREADS")


def limit_threads(count: int | None) -> None:
    """Allow `count` threads; None leaves the libraries' own choice. Call before numpy is imported."""
    if count is not None:
        os.environ.update(dict.fromkeys(_VARIABLES, str(count)))
