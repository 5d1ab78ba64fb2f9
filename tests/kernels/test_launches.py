"""What a step costs in launches, and how large its largest array gets, as traced on Flash's layers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

mx = pytest.importorskip("mlx.core")

from bench.flash_graph import SHAPE, flash_graph  # noqa: E402
from bench.host_overhead import launches, mean_launches, primitives  # noqa: E402
from ds4mlx.kernels import route  # noqa: E402
from ds4mlx.model import Model  # noqa: E402
from ds4mlx.operations import make_operations  # noqa: E402
from shared.model.known_shapes import FLASH  # noqa: E402
from shared.model.memory import DEFAULT_PREFILL_CHUNK  # noqa: E402
from shared.model.shape import ModelShape  # noqa: E402

MOST = 18 * 43  # a decode step over Flash's layers, on average


@pytest.fixture(scope="module")
def model() -> Model:
    return flash_graph(raw=True, kernels=True)


def test_a_decode_step_has_few_launches(model: Model) -> None:
    found = mean_launches(model)
    assert found["no window"] < found["ratio-4 windows"] < found["all windows"]
    assert 10 * 43 < found["mean"] <= MOST


def test_a_step_without_kernels_is_counted_alike() -> None:
    """The count falls because kernels replace operations, not because it overlooks any."""
    plain = launches(primitives(flash_graph(raw=True), 1020))
    assert plain > 10 * MOST


def largest_array(model: Model, start: int, count: int) -> tuple[int, str]:
    """Elements of the largest array that a prefill step makes, and what makes it. Nothing is computed."""
    found: list[tuple[int, str]] = []
    state = model.open_state(start + count + 1)
    kept = {array.shape for array in state.arrays()}
    state.position = start

    def collect(entry: dict[str, Any]) -> None:
        if entry.get("type") == "primitive":
            for _, shape, _ in entry["outputs"]:
                if tuple(shape) not in kept:
                    found.append((math.prod(shape), entry["name"]))

    def step(tokens: mx.array) -> list[mx.array]:
        result = model.forward(tokens, state)
        return result.arrays()

    mx.export_function(collect, step, mx.zeros((count,), mx.int32))
    return max(found)


def widest_row(shape: ModelShape) -> int:
    """Numbers that a step may keep of one token at once."""
    return max(
        shape.streams * shape.embedding_width,
        shape.head_count * shape.head_dim,
        2 * shape.expert_width,
        shape.experts_used * shape.expert_width,
    )


@pytest.mark.parametrize("count", [512, DEFAULT_PREFILL_CHUNK])
def test_a_prefill_steps_arrays_are_bounded_by_its_tokens(model: Model, count: int) -> None:
    """However far back the prompt began: a giant array would exceed what one Metal buffer may hold."""
    bound = count * widest_row(SHAPE)
    for start in (0, 24 * 1024, 60_000):
        elements, name = largest_array(model, start, count)
        # Scores over all compressed rows come in blocks of at most 64 Mi numbers.
        assert elements <= max(bound, 64 << 20), (start, name, elements)
    assert largest_array(model, 0, count)[0] <= 2 * bound
    # With the true dimensions of Flash: half a gigabyte of float32.
    assert count * widest_row(FLASH) * 4 <= 1 << 29


def test_dimensions_that_kernels_refuse_fall_back() -> None:
    few_experts = replace(SHAPE, expert_count=4, experts_used=2)
    operations = make_operations(few_experts, lambda name: mx.fast.metal_kernel, rounds=True)
    assert [refusal.split(":")[0] for refusal in operations.refusals] == ["route"]
    assert operations.route.func is route.fallback
