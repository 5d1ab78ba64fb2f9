"""The bar of a conversion: weights, not bytes, and only on a terminal."""

from __future__ import annotations

import pytest

from apps.quantize.progress import conversion_progress
from shared.gguf.types import TensorType
from shared.quantise.plan import PlannedTensor
from tests.support import consoles

# Equal numbers of weights in very different numbers of bytes.
PLAN = [
    PlannedTensor("small", TensorType.IQ2_XXS, (256, 10), ()),
    PlannedTensor("large", TensorType.F32, (256, 10), ()),
]


@pytest.mark.parametrize(("count", "percent"), [(1, "50%"), (2, "100%")])
def test_it_counts_weights_and_names_the_tensor(count: int, percent: str) -> None:
    target = consoles.terminal(width=100, colors=False)
    with conversion_progress(PLAN, target.console) as advance:
        for tensor in PLAN[:count]:
            for _ in range(2):
                advance(tensor, tensor.nbytes // 2)
    assert f" {percent} " in target.text
    assert PLAN[count - 1].name in target.text


def test_it_is_silent_in_a_file() -> None:
    target = consoles.file()
    with conversion_progress(PLAN, target.console) as advance:
        advance(PLAN[0], PLAN[0].nbytes)
    assert target.text == ""
