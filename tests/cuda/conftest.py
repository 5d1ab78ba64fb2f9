"""Every kernel test runs in the simulator: quick checks always, all checks in the long tests."""

from __future__ import annotations

import pytest

from ds4cuda.device import Device
from tests.cuda.cupy_standin import CupyStandin
from tests.ksim import clang_missing

_LONG = pytest.mark.long
_CHECKS = [
    pytest.param(("fast", 0), id="fast"),
    pytest.param(("full", 1), id="full", marks=_LONG),
    pytest.param(("full", 2), id="full-other-schedule", marks=_LONG),
]


@pytest.fixture(params=_CHECKS)
def device(request: pytest.FixtureRequest) -> Device:
    """A device whose kernels run with some level of checks and some order of threads."""
    missing = clang_missing()
    if missing:
        pytest.skip(missing)
    check, seed = request.param
    return Device(CupyStandin(check=check, seed=seed))
