"""Decode steps as captured graphs, under the rules of CUDA: one graph for each kind of step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from ds4cuda.device import Device
from ds4cuda.engine import load
from ds4cuda.graph import DecodeSteps
from ds4cuda.model import Model
from ds4cuda.state import State
from ds4cuda.step import Step, covered_end
from shared.model.known_shapes import FLASH
from shared.model.reference import Activation
from tests.cuda.cupy_standin import CaptureError, CupyStandin
from tests.cuda.models import engine, needs_simulator
from tests.support.golden import model_path

pytestmark = needs_simulator
TOKENS = [5, 9, 700, 3]


def model_on(cupy: CupyStandin) -> Model:
    return load(model_path("tiny-q2"), context=1024, prefill_chunk=64, cupy=cupy)._model


def decoded(
    model: Model, tokens: list[int], *, start: int = 0, plain: bool = False
) -> tuple[State, npt.NDArray[np.float32]]:
    """The state after `tokens` from a position on, one step each, and the logits of all of them."""
    state, places = model.open_state(100), model.device.zeros((2, model.shape.vocabulary_size), np.float32)
    steps, logits = DecodeSteps(model, state, places), []
    for position, token in enumerate(tokens, start):
        model.begin(position, 1, token)
        if plain:
            logits.append(model.device.download(model.forward(state, model.step(position, 1))))
        else:
            steps.run(position)
            logits.append(model.device.download(places[(position + 1) % 2]))
    return state, np.stack(logits)


@pytest.mark.parametrize(
    ("activation", "start"),
    [
        ("kv", 0),
        pytest.param("kv", 66, marks=pytest.mark.long),  # from the second token on, rows are chosen
        pytest.param("actq", 66, marks=pytest.mark.long),
    ],
)
def test_a_captured_step_serves_other_positions(activation: Activation, start: int) -> None:
    """Bit for bit, with the state that it leaves; only `begin` is outside the graph."""
    model = engine("tiny-q2", activation)._model
    assert model.step(67, 1).chooses
    (captured, found), (plain, expected) = (
        decoded(model, TOKENS, start=start, plain=plain) for plain in (False, True)
    )
    assert np.array_equal(found, expected)
    for one, other in zip(captured.arrays, plain.arrays, strict=True):
        assert np.array_equal(one.view(np.uint8), other.view(np.uint8))


def test_steps_are_captured_once_for_each_kind() -> None:
    """The first of a kind is launched piece by piece, and four kinds are kept."""
    cupy = CupyStandin(runs=())
    model = model_on(cupy)
    steps = DecodeSteps(model, model.open_state(1024), model.device.zeros((2, 1280), np.float32))

    def run(position: int) -> str:
        before = len(cupy.asked)
        steps.run(position)
        return "graph" if cupy.asked[before:] == ["graph"] else "pieces"

    top_k = model.shape.index_top_k
    choosing = 4 * top_k + 3  # the first position with more rows than may be chosen
    assert choosing < 256
    assert [run(at) for at in (3, 5, 0, choosing - 1)] == ["pieces", "graph", "graph", "graph"]
    assert [run(at) for at in (choosing, 255, 256, 319, 320)] == [
        "pieces",
        "graph",
        "pieces",
        "graph",
        "pieces",
    ]
    assert [run(at) for at in (choosing, 4, 384, choosing)] == ["graph", "graph", "pieces", "graph"]
    assert [run(at) for at in (257, 4)] == ["pieces", "graph"]  # the fifth kind, and one used meanwhile


def test_what_a_step_covers() -> None:
    ends = [256]
    while ends[-1] < 1 << 20:
        ends.append(covered_end(ends[-1] + 1))
    assert len(ends) == 49
    assert ends[:6] == [256, 320, 384, 448, 512, 640]
    assert all(covered_end(end) == end for end in ends)
    for end in (1, 256, 257, 319, 320, 2049, 1 << 20):
        assert end <= covered_end(end) <= max(256, end * 1.25)
    assert Step.at(FLASH, 300, 1) == Step.at(FLASH, 319, 1)
    assert Step.at(FLASH, 300, 2).end == 302


def test_a_gpu_that_cannot_capture_gets_every_launch() -> None:
    """One warning for all sessions, and the same logits."""
    cupy = CupyStandin(refuses=True)
    model = model_on(cupy)
    with pytest.warns(RuntimeWarning, match="piece by piece"):
        _, found = decoded(model, TOKENS[:2])
    decoded(model, TOKENS[:1])  # a second warning would be an error
    assert "graph" not in cupy.asked
    assert np.array_equal(found, decoded(engine()._model, TOKENS[:2])[1])


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
    with pytest.raises(CaptureError, match="first launch"):
        launch((1,), (1,), (array,))
    device.stream.end_capture()
    launch((1,), (1,), (array,))
    array[0] = 0
    device.stream.begin_capture()
    launch((1,), (1,), (array,))
    graph = device.stream.end_capture()
    assert array[0] == 0
    graph.launch()
    assert array[0] == 1
