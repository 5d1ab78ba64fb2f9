from __future__ import annotations

import numpy as np

from shared.model.known_shapes import FLASH
from shared.model.reference_math import rotate
from shared.model.rope import rope_tables, rotary_frequencies


def test_window_only_layers_have_the_plain_base() -> None:
    pairs = np.arange(32)
    np.testing.assert_allclose(rotary_frequencies(FLASH, 0), 10000.0 ** (-pairs / 32), rtol=1e-14)


def test_compressed_layers_mix_scaled_and_plain_frequencies_between_pairs_15_and_25() -> None:
    plain = 160000.0 ** (-np.arange(32) / 32)
    for ratio in (4, 128):
        found = rotary_frequencies(FLASH, ratio)
        np.testing.assert_allclose(found[:16], plain[:16], rtol=1e-14)
        np.testing.assert_allclose(found[25:], plain[25:] / 16, rtol=1e-14)
        np.testing.assert_allclose(found[20], plain[20] * (0.5 + 0.5 / 16), rtol=1e-14)


def test_positions_near_a_million_keep_their_angle() -> None:
    positions = np.array([999_999, 1_048_575])
    cosines, sines = rope_tables(FLASH, 4, positions)
    exact = positions[:, None].astype(np.longdouble) * rotary_frequencies(FLASH, 4).astype(np.longdouble)
    np.testing.assert_allclose(cosines, np.cos(exact).astype(np.float64), atol=1e-7)
    np.testing.assert_allclose(sines, np.sin(exact).astype(np.float64), atol=1e-7)
    assert cosines.dtype == sines.dtype == np.float32


def test_rotation_turns_trailing_interleaved_pairs_and_back() -> None:
    rows = np.random.default_rng(0).standard_normal((3, 2, 128)).astype(np.float32)
    cosines, sines = rope_tables(FLASH, 0, [0, 7, 100])
    turned = rotate(rows, cosines, sines)
    np.testing.assert_array_equal(turned[..., :64], rows[..., :64])
    np.testing.assert_array_equal(turned[0], rows[0])
    first, second = rows[1, 0, 66], rows[1, 0, 67]
    np.testing.assert_allclose(turned[1, 0, 66], first * cosines[1, 1] - second * sines[1, 1], rtol=1e-6)
    np.testing.assert_allclose(turned[1, 0, 67], first * sines[1, 1] + second * cosines[1, 1], rtol=1e-6)
    np.testing.assert_allclose(rotate(turned, cosines, -sines), rows, atol=1e-6)
