from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from ds4mlx.kernels.kernel import Kernel, Maker

PROBE = Kernel(
    name="sums_probe",
    body=Path(__file__).parent / "sums_probe.metal",
    inputs=("values",),
    outputs=("results",),
    functions=("sums.metal",),
)


def _check(maker: Maker, simdgroups: int) -> None:
    """Whole numbers, all below or all above 0, so that sums are exact and a 0 too many shows in a maximum."""
    threads = 32 * simdgroups
    values = np.random.default_rng(simdgroups).permutation(threads).astype(np.float32) + 1
    launch = PROBE.specialise(maker, SIMDGROUPS=simdgroups)
    for signed in (values, -values):
        group = (threads, 1, 1)
        (results,) = launch([mx.array(signed)], ((threads, 4),), (mx.float32,), group, group)
        expected = [signed.sum(), signed.max(), -signed.sum(), (-signed).max()]
        np.testing.assert_array_equal(np.array(results), np.tile(expected, (threads, 1)))


# What a mutant of the functions has to fail.
CASES: dict[str, Callable[[Maker], None]] = {
    "one simdgroup": lambda maker: _check(maker, 1),
    "three simdgroups": lambda maker: _check(maker, 3),
    "as many as lanes": lambda maker: _check(maker, 32),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, maker: Maker) -> None:
    CASES[case](maker)
