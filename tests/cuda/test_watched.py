"""What a watched session shows on the CUDA backend, whichever kernels computed it."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from shared.expert_watch import WatchableEngine
from shared.model.reference import Activation
from shared.model.reference_engine import load
from tests.cuda.models import engine, needs_simulator
from tests.support.golden import golden_logits, model_path

pytestmark = needs_simulator
PROMPT = golden_logits("tiny-q2", "short")["tokens"].tolist()[:8]
# The first step has enough pairs to group them by expert, the second has not.
STEPS = (6, 2)

Shown = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.float32]]


def _in_order(inputs: np.ndarray, chosen: np.ndarray, hidden: np.ndarray) -> Shown:
    """Each token's slots by expert: backends choose equally good ones in another order."""
    order = np.argsort(chosen, axis=1)
    rows = np.take_along_axis(hidden, order[..., None], axis=1)
    return inputs.copy(), np.take_along_axis(chosen, order, axis=1), rows


def _shown(watchable: WatchableEngine) -> list[tuple[int, Shown]]:
    shown: list[tuple[int, Shown]] = []
    session = watchable.open_watched_session(
        32, lambda layer, *arrays: shown.append((layer, _in_order(*arrays)))
    )
    session.sync(PROMPT, quantum=STEPS[0])
    session.close()
    assert [layer for layer, _ in shown] == [*range(6), *range(6)]
    return shown


@cache
def _shown_by_cuda(activation: Activation) -> list[tuple[int, Shown]]:
    return _shown(engine(activation=activation))


def _close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("activation", ["kv", pytest.param("actq", marks=pytest.mark.long)])
def test_rows_are_those_that_the_reference_makes_of_the_inputs(activation: Activation) -> None:
    reference = load(model_path("tiny-q2"), activation=activation)._reference
    made: list[Shown] = []
    watched = reference.watched(lambda layer, *arrays: made.append(_in_order(*arrays)))
    for number, (layer, (inputs, chosen, hidden)) in enumerate(_shown_by_cuda(activation)):
        tokens = np.array(PROMPT[: STEPS[0]] if number < 6 else PROMPT[STEPS[0] :])
        watched.experts(layer, inputs, *watched.route(layer, inputs, tokens))
        _, expected_experts, expected_rows = made.pop()
        np.testing.assert_array_equal(chosen, expected_experts)
        _close(hidden, expected_rows, 1e-5)


def test_inputs_are_those_of_the_reference() -> None:
    found, expected = _shown_by_cuda("kv"), _shown(load(model_path("tiny-q2")))
    for (_, (inputs, chosen, _)), (_, (wanted, experts, _)) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(chosen, experts)
        _close(inputs, wanted, 1e-3)
