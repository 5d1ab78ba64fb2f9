"""The golden limits of logits (tests/golden/README.md), as assertions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


class KvLimits(NamedTuple):
    """Bounds of the per-position largest logit difference in `kv` mode, and of equal best ids."""

    median: float
    quantile_95: float
    largest: float
    same_best: float


SHORT_LIMITS = KvLimits(2e-3, 2e-2, 0.3, 0.99)
LONG_LIMITS = KvLimits(1e-2, 0.15, 1.0, 0.98)
FLOAT_LIMIT = 2e-5  # plain float32 arithmetic


def kv_limits(prompt: str) -> KvLimits:
    """Limits for a golden prompt by name."""
    return SHORT_LIMITS if prompt in ("short", "medium") else LONG_LIMITS


def differences(ours: Array, golden: Array) -> Array:
    """Largest absolute difference at each position of logits [positions, vocabulary]."""
    assert ours.shape == golden.shape
    assert np.isfinite(ours).all()
    largest: Array = np.abs(ours - golden).max(axis=1)
    return largest


def assert_float(ours: Array, golden: Array) -> None:
    assert differences(ours, golden).max() <= FLOAT_LIMIT


def assert_kv(ours: Array, golden: Array, limits: KvLimits) -> None:
    """Judge differences; `assert_same_best` judges the ids."""
    found = differences(ours, golden)
    measured = (float(np.median(found)), float(np.quantile(found, 0.95)), float(found.max()))
    assert measured[0] <= limits.median, measured
    assert measured[1] <= limits.quantile_95, measured
    assert measured[2] <= limits.largest, measured


def assert_same_best(ours: npt.NDArray[np.integer], golden: npt.NDArray[np.integer], share: float) -> None:
    """Best ids at every position: at least `share` of them equal."""
    assert ours.shape == golden.shape
    assert float((ours == golden).mean()) >= share


def assert_golden(
    golden: dict[str, npt.NDArray[Any]],
    logits: npt.NDArray[np.float32],
    greedy: npt.NDArray[np.float32],
    *,
    mode: str,
    prompt: str,
) -> None:
    """Compare a run with a golden file: `logits` [prompt tokens, vocabulary], `greedy` [32, vocabulary], the
    rows that chose the stored greedy tokens."""
    stored, stored_greedy = golden[f"logits_{mode}"], golden[f"greedy_logits_{mode}"]
    if mode == "float":
        assert_float(logits[golden["positions"]], stored)
        assert_float(greedy, stored_greedy)
        assert_same_best(logits.argmax(axis=1), golden["argmax_float"], 1.0)
    else:
        limits = kv_limits(prompt)
        assert_kv(logits[golden["positions"]], stored, limits)
        assert_kv(greedy, stored_greedy, LONG_LIMITS)
        assert_same_best(logits.argmax(axis=1), golden["argmax_kv"], limits.same_best)
