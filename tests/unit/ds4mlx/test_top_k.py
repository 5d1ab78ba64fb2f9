from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

mx = pytest.importorskip("mlx.core")

from ds4mlx.top_k import top_k_indices  # noqa: E402


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_lower_indices_win_ties(data: st.DataObject) -> None:
    values = st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0, -np.inf])
    scores = data.draw(st.lists(values, min_size=1, max_size=40))
    count = data.draw(st.integers(1, len(scores)))
    row = np.array(scores, np.float32)
    best = np.sort(np.argsort(-row, kind="stable")[:count])
    assert np.array(top_k_indices(mx.array(row[None]), count))[0].tolist() == best.tolist()


def test_rows_are_independent() -> None:
    scores = np.random.default_rng(1).integers(0, 6, (5, 3, 50)).astype(np.float32)
    expected = np.sort(np.argsort(-scores, axis=-1, kind="stable")[..., :7], axis=-1)
    assert np.array_equal(np.array(top_k_indices(mx.array(scores), 7)), expected)
