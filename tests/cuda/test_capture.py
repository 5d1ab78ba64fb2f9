"""The rules of CUDA graphs hold: a step is captured once and serves later positions."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.step import Step
from tests.cuda.cupy_standin import CaptureError, CupyStandin
from tests.cuda.models import engine, needs_simulator

pytestmark = needs_simulator
TOKENS = [5, 9, 700, 3]


def test_a_captured_step_serves_other_positions() -> None:
    """Only `begin` is outside the graph: it says where the step stands, and which token it is."""
    model = engine()._model
    plain, replayed = model.open_state(100), model.open_state(100)
    wide = Step.at(model.shape, 60, 1)  # the same launches for every position up to this one
    model.device.stream.begin_capture()
    logits = model.forward(replayed, wide)
    graph = model.device.stream.end_capture()
    for position, token in enumerate(TOKENS):
        model.begin(position, 1, token)
        graph.launch(model.device.stream)
        found = model.device.download(logits)
        model.begin(position, 1, token)
        expected = model.device.download(model.forward(plain, model.step(position, 1)))
        np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(replayed.compressed[2].attention[0], plain.compressed[2].attention[0])


def test_what_a_capture_forbids() -> None:
    cupy = CupyStandin()
    device = Device(cupy)
    array, kernel = device.zeros((4,), np.float32), 'extern "C" __global__ void f(float* x) { x[0] = 1.0f; }'
    launch = device.function(kernel, "f", ())
    device.stream.begin_capture()
    for forbidden in (
        lambda: device.zeros((1,), np.float32),
        lambda: device.empty((1,), np.float32),
        lambda: device.upload(np.zeros(1)),
        lambda: device.download(array),
        lambda: device.copy(array, array),
        lambda: device.fetch(array),
        device.synchronize,
        lambda: device.function(kernel + "\n", "f", ()),
        device.stream.begin_capture,
    ):
        with pytest.raises(CaptureError):
            forbidden()
    launch((1,), (1,), (array,))
    graph = device.stream.end_capture()
    assert array[0] == 0
    graph.launch()
    assert array[0] == 1
