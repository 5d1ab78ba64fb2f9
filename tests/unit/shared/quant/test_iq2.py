from __future__ import annotations

import numpy as np
from gguf.quants import IQ2_XXS

from shared.quant.iq2 import iq2_grid, iq2_signs


def test_grid_is_the_one_of_the_format() -> None:
    IQ2_XXS.init_grid()
    np.testing.assert_array_equal(iq2_grid(), np.asarray(IQ2_XXS.grid).reshape(256, 8))
    assert set(np.unique(iq2_grid())) == {8, 25, 43}


def test_signs_have_even_parity() -> None:
    np.testing.assert_array_equal(iq2_signs(), np.frombuffer(bytes(IQ2_XXS.ksigns), np.uint8))
