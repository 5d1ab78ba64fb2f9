"""A decode step is one graph: nothing in it asks the host, whatever the step completes."""

from __future__ import annotations

import pytest

pytest.importorskip("mlx.core")

from bench.host_overhead import VIEWS, launches, primitives
from tests.support.mlx_models import model


@pytest.mark.parametrize("position", [0, 3, 126, 127, 128, 255, 1021, 1023])
def test_a_step_can_be_traced_without_evaluating_anything(position: int) -> None:
    found = primitives(model(), position)
    assert found["GatherMM"] == 2 * model().shape.layer_count
    assert 0 < launches(found) < sum(found.values())
    assert launches(found) == sum(found.values()) - sum(found[view] for view in VIEWS)


def test_a_completed_window_adds_its_row() -> None:
    subject = model()
    assert launches(primitives(subject, 1022)) < launches(primitives(subject, 1019))
