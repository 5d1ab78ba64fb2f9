"""The tiny model on each engine that has weights, to be opened by a server."""

from __future__ import annotations

import pytest

from shared.session import Engine
from tests.support.golden import tiny_q2


def open_mlx() -> Engine:
    pytest.importorskip("mlx.core")
    from ds4mlx.engine import load

    return load(tiny_q2())


def open_reference() -> Engine:
    from shared.model.reference_engine import load

    return load(tiny_q2())
