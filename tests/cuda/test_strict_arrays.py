"""The backend never touches what is in the device's memory but through the device."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.engine import load
from shared.model.reference import Activation
from shared.sampling import GREEDY, Sampling
from tests.cuda.models import needs_simulator
from tests.cuda.strict_cupy import StrictCupy
from tests.support.golden import golden_logits, tiny_q2

pytestmark = needs_simulator
PROMPT = golden_logits("tiny-q2", "short")["tokens"].tolist()[:5]


@pytest.mark.parametrize(
    "mode", [pytest.param("actq", id="8-bit"), pytest.param("kv", id="float", marks=pytest.mark.long)]
)
def test_a_session_in_strict_arrays(mode: Activation) -> None:
    engine = load(tiny_q2(), context=64, prefill_chunk=16, activation=mode, cupy=StrictCupy())
    session = engine.open_session(64)
    session.sync(PROMPT)
    mark = session.mark()
    allowed = np.zeros(engine.shape.vocabulary_size, bool)
    allowed[[3, 700]] = True
    for sampling, mask in ((GREEDY, None), (Sampling(), allowed)):
        session.submit(session.pick(sampling, 0.5, mask))
    session.undo()
    before = session.snapshot()
    session.rewind(mark)
    session.restore(before)
    assert session.snapshot() == before
    session.close()


def test_what_strict_arrays_refuse() -> None:
    device = Device(StrictCupy())
    array = device.zeros((4, 4), np.float32)
    for wrong in (
        lambda: array + 1,
        lambda: np.sum(array),
        lambda: bool(array[0, :1]),
        lambda: np.copyto(array, 1),
    ):
        with pytest.raises(TypeError):
            wrong()
    for wrong in (
        lambda: device.download(array[:, 1]),
        lambda: device.copy(array, np.zeros((4, 4), np.float32)),
    ):
        with pytest.raises(AssertionError):
            wrong()
