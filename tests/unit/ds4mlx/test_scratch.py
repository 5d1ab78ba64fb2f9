"""What a step is planned to need: what a traced layer makes, and about what a computed one takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

mx = pytest.importorskip("mlx.core")

from ds4mlx.costs.workload import Moment  # noqa: E402
from ds4mlx.scratch import scratch_bytes  # noqa: E402
from shared.gguf.types import TensorType  # noqa: E402
from shared.model.known_shapes import FLASH, PRO  # noqa: E402
from shared.model.shape import ModelShape  # noqa: E402
from tests.support.golden import golden_logits  # noqa: E402
from tests.support.mlx_models import engine  # noqa: E402
from tests.support.traced_steps import traced_step  # noqa: E402

TYPES = (TensorType.IQ2_XXS, TensorType.Q2_K)


def layers(shape: ModelShape, ratio: int, count: int) -> ModelShape:
    return replace(shape, layer_count=count, compress_ratios=(ratio,) * count, hash_layers=0)


@pytest.mark.parametrize("shape", [FLASH, PRO], ids=["flash", "pro"])
@pytest.mark.parametrize(
    ("ratio", "context", "tokens"),
    [(0, 32768, 4096), (4, 32768, 4096), (128, 32768, 4096), (4, 2048, 2048), (4, 60_000, 100)],
)
def test_all_arrays_of_a_layer_are_planned_for(
    shape: ModelShape, ratio: int, context: int, tokens: int
) -> None:
    moment = Moment(context - tokens, tokens)
    one, two = (
        traced_step(layers(shape, ratio, count), TYPES, moment, quality=True).bytes for count in (1, 2)
    )
    # What a layer begins with the one before has made, and no trace shows what products copy first and last.
    begun = (
        shape.streams * shape.embedding_width + shape.embedding_width + shape.streams * (1 + shape.streams)
    )
    copied = shape.head_count * shape.head_dim + shape.output_groups * shape.output_rank
    planned = scratch_bytes(layers(shape, ratio, 1), context, tokens, 2)
    assert planned - 4 * tokens * (begun + copied) == pytest.approx(two - one, rel=0.01)


def test_the_layer_that_makes_most_is_planned_for() -> None:
    sizes = [scratch_bytes(layers(FLASH, ratio, 1), 32768, 4096, 2) for ratio in (0, 4, 128)]
    assert scratch_bytes(FLASH, 32768, 4096, 2) == max(sizes) == sizes[1]


def test_a_step_takes_about_what_is_planned() -> None:
    whole = engine(prefill_chunk=512)
    tokens = golden_logits("tiny-q2", "long")["tokens"][:512].tolist()
    session = whole.open_session(600)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    session.sync(tokens)
    taken, planned = mx.get_peak_memory() - before, whole.memory_plan(600).scratch
    assert taken < planned * 1.2
    if mx.default_device() == mx.Device(mx.cpu):
        assert taken > planned / 2
