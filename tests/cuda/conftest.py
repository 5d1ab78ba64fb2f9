"""Kernel tests run in the simulator, quick checks always and all checks in the long tests, or on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cuda.on_device import ELSEWHERE, HostArrayDevice, kernel_device, on_device

if TYPE_CHECKING:
    from ds4cuda.device import Device

collect_ignore = list(ELSEWHERE) if on_device() else []
_LONG = pytest.mark.long
_CHECKS = [
    pytest.param(("fast", 0), id="fast"),
    pytest.param(("full", 1), id="full", marks=_LONG),
    pytest.param(("full", 2), id="full-other-schedule", marks=_LONG),
]


@pytest.fixture(params=[pytest.param(("gpu", 0), id="gpu")] if on_device() else _CHECKS)
def device(request: pytest.FixtureRequest) -> Device | HostArrayDevice:
    """A device whose kernels run with some level of checks and some order of threads; on a GPU as they do."""
    return kernel_device(*request.param)
