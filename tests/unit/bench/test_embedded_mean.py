"""The mean of several states of one training run."""

from __future__ import annotations

import numpy as np
import pytest

from bench.embedded_model.export import mean_of

TABLE = np.array([[0, 1], [1, 0]], dtype=np.int32)


def state(value: float) -> dict[str, np.ndarray]:
    return {"a": np.full((2, 3), value, dtype=np.float32), "table": TABLE}


def test_a_state_named_twice_counts_twice() -> None:
    mean = mean_of([state(1.0), state(1.0), state(4.0)])
    np.testing.assert_array_equal(mean["a"], np.full((2, 3), 2.0, dtype=np.float32))
    assert mean["a"].dtype == np.float32
    np.testing.assert_array_equal(mean["table"], TABLE)


def test_one_state_stays_as_it_is() -> None:
    np.testing.assert_array_equal(mean_of([state(0.1)])["a"], state(0.1)["a"])


def test_states_of_other_models_are_refused() -> None:
    with pytest.raises(ValueError, match="a has different shapes"):
        mean_of([state(1.0), state(1.0) | {"a": np.ones((1, 3), dtype=np.float32)}])
    with pytest.raises(ValueError, match="table differs"):
        mean_of([state(1.0), state(1.0) | {"table": 1 - TABLE}])
