"""Steps of published and of test models, traced at their real dimensions, are kernels from end to end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

mx = pytest.importorskip("mlx.core")

from bench.host_overhead import VIEWS  # noqa: E402
from ds4mlx.costs.workload import Moment  # noqa: E402
from ds4mlx.kernels.registry import OPERATIONS, operation  # noqa: E402
from shared.gguf.types import TensorType  # noqa: E402
from shared.model.known_shapes import PRO  # noqa: E402
from tests.support.hollow_weights import hollow_weights  # noqa: E402
from tests.support.shapes import toy_shape  # noqa: E402
from tests.support.traced_models import EACH, EVERYDAY, MODELS, PROOF, launches, traced_steps  # noqa: E402
from tests.support.traced_steps import TracedStep, traced_step  # noqa: E402

TYPES = (TensorType.IQ2_XXS, TensorType.Q2_K)
# What a step does besides: it looks up embeddings, as float32, takes the only row of its logits, and writes
# rows into the state.
ONCE = {"Gather": 1, "AsType": 1}
# In each layer of a step of several tokens: MLX multiplies Q8_0 matrices, the shared expert is activated, and
# the last rows and frontier rows are kept.
EACH_LAYER = {
    **{"QuantizedMatmul": 6, "Minimum": 1, "Maximum": 1, "Sigmoid": 1, "Multiply": 2},
    **{"Arange": 2, "Gather": 2},
}


def foreign(step: TracedStep, layers: int, count: int) -> dict[str, int]:
    """Primitives that a step of `count` tokens has more often than it may."""
    allowed = Counter(ONCE)
    if count > 1:
        for name, times in EACH_LAYER.items():
            allowed[name] += times * layers
    return {
        name: times
        for name, times in step.primitives.items()
        if name not in VIEWS | {"CustomKernel", "SliceUpdate"} and times > allowed[name]
    }


@pytest.mark.parametrize("name", EACH)
def test_no_operation_falls_back(name: str) -> None:
    for moment, step in traced_steps(name).items():
        layers = MODELS[name].shape().layer_count
        assert step.primitives["CustomKernel"] > 10 * layers
        assert not foreign(step, layers, moment.count), moment


SMALL = replace(
    toy_shape(embedding_width=256, expert_width=256, expert_count=8, query_rank=64, vocabulary_size=64),
    output_groups=2,
    output_rank=32,
    index_heads=4,
    index_top_k=16,
)


# The fallback of experts for many tokens asks the host, which a traced step cannot; several tokens' rows are
# written without an operation.
SEEN_IN_PREFILL = [name for name in OPERATIONS if name not in ("run_experts", "stack_rows")]


@pytest.mark.parametrize(
    ("missing", "count"), [(name, 1) for name in OPERATIONS] + [(name, 9) for name in SEEN_IN_PREFILL]
)
def test_a_fallback_would_be_seen(missing: str, count: int) -> None:
    moment = Moment(383, count)  # ends windows of both ratios, and the indexer chooses
    assert not foreign(traced_step(SMALL, TYPES, moment), SMALL.layer_count, count)
    step = traced_step(SMALL, TYPES, moment, lambda name: name != missing)
    assert foreign(step, SMALL.layer_count, count)


@pytest.mark.parametrize("names", [EVERYDAY, [PROOF]], ids=["by models", "by examples"])
def test_every_kernel_is_launched(names: list[str]) -> None:
    """What is checked of these launches is checked of all kernels; and each proves itself on a device."""
    every = {kernel.name for name in OPERATIONS for kernel in operation(name).KERNELS}
    assert {launch.kernel for name in names for launch in launches(name)} == every


def test_a_traced_step_allocates_no_weights() -> None:
    moment = Moment(4224, 40)
    weights = hollow_weights(PRO, *TYPES)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    traced_step(PRO, TYPES, moment)
    caches = PRO.layer_count * (moment.end * 2048 // 4 + 129 * 1024)
    assert weights.nbytes > 300e9
    assert mx.get_peak_memory() - before < 2 * caches
