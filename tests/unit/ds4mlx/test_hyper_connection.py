from __future__ import annotations

import numpy as np
import pytest

from tests.support.golden import golden_arrays

mx = pytest.importorskip("mlx.core")

from ds4mlx.hyper_connection import mixing_weights  # noqa: E402

VECTORS = golden_arrays("vectors.npz")


def test_golden_vectors() -> None:
    for mix, scale, base, expected in zip(
        VECTORS["hc_mix"], VECTORS["hc_scale"], VECTORS["hc_base"], VECTORS["hc_out"], strict=True
    ):
        pre, half_post, combine = mixing_weights(
            mx.array(mix * np.repeat(scale, (4, 4, 16)) + base)[None],
            streams=4,
            rounds=20,
            epsilon=1e-6,
        )
        ours = np.concatenate([np.array(part).reshape(-1) for part in (pre, 2 * half_post, combine)])
        assert np.abs(ours - expected).max() <= 5e-7
