"""Every kernel test runs its kernels in the simulator: quick checks always, all checks in the long tests."""

from __future__ import annotations

from functools import partial

import pytest

from ds4mlx.kernels.kernel import Maker
from tests.ksim import clang_missing, metal_kernel

_LONG = pytest.mark.long
_CHECKS = [
    pytest.param(("fast", 0), id="fast"),
    pytest.param(("full", 1), id="full", marks=_LONG),
    pytest.param(("full", 2), id="full-other-schedule", marks=_LONG),
]


@pytest.fixture(params=_CHECKS)
def maker(request: pytest.FixtureRequest) -> Maker:
    """What makes kernels, as `mx.fast.metal_kernel` would: the simulator with some level of checks and some
    order of threads."""
    missing = clang_missing()
    if missing:
        pytest.skip(missing)
    check, seed = request.param
    return partial(metal_kernel, check=check, seed=seed)
