"""Routed experts of every block type with 8-bit activations: integers are exact, only sums are rounded."""

from __future__ import annotations

import numpy as np
import pytest

from ds4cuda.device import Device
from ds4cuda.kernels import run_experts8
from ds4cuda.weights import Experts
from shared.gguf.types import TensorType
from shared.model.reference_math import swiglu
from shared.quant.dequantise import dequantise
from shared.quant.iq2 import iq2_grid
from tests.cuda.arrays import assert_close, matrix
from tests.cuda.codes import dense_codes, expert_codes
from tests.cuda.test_experts import SCALES_AT, blocks

ENTRIES, USED, COUNT = 3, 2, 2
CHOSEN = np.array([[2, 0], [1, 1]], np.int32)  # an expert twice counts twice


@pytest.mark.parametrize("kind", SCALES_AT, ids=lambda kind: kind.name)
def test_experts(device: Device, kind: TensorType) -> None:
    """Types of gate and up and of down do not depend on each other: one of each type will do."""
    random, kinds = np.random.default_rng(1), (kind, kind)
    width, inner = 1280, 256
    gate, up = (blocks(random, kind, ENTRIES * inner, width) for _ in range(2))
    down = blocks(random, kind, ENTRIES * width, inner)
    experts, table = Experts(gate, up, down, *kinds), iq2_grid().view("<u4")
    sizes = {"width": width, "expert_width": inner, "used": USED, "clamp": 10.0}
    run = run_experts8.build(device, in_type=kind, down_type=kind, **sizes)

    x, values = expert_codes(random, COUNT, width)
    shares = random.uniform(0.1, 2, (COUNT, USED)).astype(np.float32)
    hidden = np.zeros((COUNT * USED, inner), np.float32)
    shared_gate_up, shared_weights = matrix(random, "q8_0", 2 * inner, width)
    dense, dense_values = dense_codes(random, COUNT, width)
    shared_hidden = np.zeros((COUNT, inner), np.float32)
    run.gate_up(experts, table, x, CHOSEN, shares, hidden, shared_gate_up, dense, shared_hidden)
    gates, ups = (dequantise(kind, part, (ENTRIES, inner, width)).astype(np.float64) for part in (gate, up))
    for token, slot in np.ndindex(COUNT, USED):
        of_gate, of_up = (
            part[CHOSEN[token, slot]].dot(values[token]).astype(np.float32) for part in (gates, ups)
        )
        expected = swiglu(of_gate, of_up, 10.0) * shares[token, slot]
        assert_close(hidden[token * USED + slot], expected, 5e-6)
    of_gate, of_up = np.split((dense_values @ shared_weights.T).astype(np.float32), 2, axis=1)
    assert_close(shared_hidden, swiglu(of_gate, of_up, 10.0), 5e-6)

    held, shared_weights = matrix(random, "q8_0", width, inner)
    (codes, hidden_values), y = (
        expert_codes(random, COUNT * USED, inner),
        np.zeros((COUNT, width), np.float32),
    )
    shared_codes, shared_values = dense_codes(random, COUNT, inner)
    run.down(experts, table, CHOSEN, codes, held, shared_codes, y)
    downs = dequantise(kind, down, (ENTRIES, width, inner)).astype(np.float64)
    outputs = shared_values @ shared_weights.T.astype(np.float64)
    for token, slot in np.ndindex(COUNT, USED):
        outputs[token] += downs[CHOSEN[token, slot]] @ hidden_values[token * USED + slot]
    assert_close(y, outputs, 2e-6)


def test_other_widths_are_refused(device: Device) -> None:
    kind = TensorType.MXFP4
    sizes = {"width": 256, "expert_width": 288, "used": 1, "clamp": 10.0}
    with pytest.raises(ValueError, match="multiples of 256"):
        run_experts8.build(device, in_type=kind, down_type=kind, **sizes)
