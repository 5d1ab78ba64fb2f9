"""Capacities and the memory plan, against the published table."""

from functools import partial

import pytest

from shared.model.known_shapes import FLASH, PRO
from shared.model.memory import (
    compressed_capacity,
    largest_context,
    memory_plan,
    prefill_cap,
    raw_capacity,
    refusal,
)
from shared.model.shape import ModelShape
from shared.session import MemoryPlanner

TABLE = [  # context, shape, raw, compressed as f16, compressed as f32, scratch
    (32768, FLASH, 383254528, 269589504, 451077120, 270602240),
    (32768, PRO, 543686656, 385769472, 645679104, 270602240),
    (1048576, FLASH, 383254528, 8623594496, 14428595200, 8592101376),
    (1048576, PRO, 543686656, 12339798016, 20653033472, 8592101376),
]


@pytest.mark.parametrize(("context", "shape", "raw", "half", "single", "scratch"), TABLE)
def test_the_published_table(
    context: int, shape: ModelShape, raw: int, half: int, single: int, scratch: int
) -> None:
    plan = memory_plan(shape, context, weights=7)
    assert (plan.raw, plan.compressed, plan.scratch) == (raw, half, scratch)
    assert plan.raw_rows == 4352
    assert plan.compressed_rows == context // 4 + 2
    assert plan.prefill_chunk == 4096
    assert plan.total == 7 + raw + half + scratch
    assert memory_plan(shape, context, weights=7, attention_row_bytes=4).compressed == single


@pytest.mark.parametrize(
    ("context", "chunk", "expected"),
    [(1, 4096, 1), (4096, 4096, 4096), (4097, 4096, 4096), (100, 7, 7), (100, 0, 100), (100, -1, 100)],
)
def test_prefill_cap(context: int, chunk: int, expected: int) -> None:
    assert prefill_cap(context, chunk) == expected


@pytest.mark.parametrize(
    ("context", "chunk", "expected"),
    [
        (1, 4096, 1),
        (100, 4096, 100),
        (300, 4096, 300),
        (4096, 4096, 4096),
        (4224, 4096, 4224),
        (5000, 4096, 4352),
        (32768, 4096, 4352),
        (100000, 4096, 4352),
        (100000, 1, 256),
        (100000, 129, 512),
        (100000, 100000, 8192),
        (100000, 0, 8192),
    ],
)
def test_raw_capacity(context: int, chunk: int, expected: int) -> None:
    assert raw_capacity(context, chunk, 128) == expected


def test_raw_capacity_holds_the_window_whatever_the_limits() -> None:
    assert raw_capacity(100000, 1, 9000) == 9000
    assert raw_capacity(5000, 1, 9000) == 5000


def test_a_default_step_never_overwrites_what_it_reads() -> None:
    for context in (1, 127, 128, 129, 4095, 4096, 4097, 4223, 4224, 4225, 10**6):
        rows = raw_capacity(context)
        assert rows >= min(prefill_cap(context) + 127, context)


@pytest.mark.parametrize(
    ("context", "ratio", "expected"),
    [(1, 4, 2), (4, 4, 3), (1000, 4, 252), (127, 128, 2), (128, 128, 3), (9999, 0, 0)],
)
def test_compressed_capacity(context: int, ratio: int, expected: int) -> None:
    assert compressed_capacity(context, ratio) == expected


def test_a_small_context_is_planned_with_a_whole_ring_step() -> None:
    plan = memory_plan(FLASH, 100, weights=0)
    assert plan.raw == 43 * 256 * 512 * 4
    assert plan.raw_rows == 100
    assert plan.scratch == 2 * 27 * 100 * 4 + 27 * 512 * 4
    assert memory_plan(FLASH, 3, weights=0).scratch == 2 * 2 * 3 * 4 + 2 * 512 * 4
    with pytest.raises(ValueError, match="impossible"):
        memory_plan(FLASH, 0, weights=0)


def flash_planner(weights: int = 0) -> MemoryPlanner:
    return partial(memory_plan, FLASH, weights=weights)


def test_the_largest_context_is_found_exactly() -> None:
    planned = flash_planner(10**10)
    budget = planned(50_000).total
    found = largest_context(planned, budget, 10**6)
    # Several sizes may share a plan: the next one must not fit.
    assert found >= 50_000
    assert planned(found).total <= budget
    assert planned(found + 1).total > budget
    assert largest_context(planned, budget, 1000) == 1000
    assert largest_context(planned, 10**9, 10**6) == 0


def test_a_refusal_names_the_flag_that_fits() -> None:
    planned = flash_planner(81 * 10**9)
    plan = planned(1 << 20)
    assert refusal(plan, plan.total, planned) is None
    text = refusal(plan, 85 * 10**9, planned)
    assert text is not None
    assert "\n" not in text
    assert "75.44 GiB of weights" in text
    suggested = int(text.rsplit("--ctx ", 1)[1])
    assert suggested % 256 == 0
    assert planned(suggested).total <= 85 * 10**9
    assert planned(suggested + 256).total > 85 * 10**9


def test_a_refusal_when_even_the_weights_do_not_fit() -> None:
    planned = flash_planner(81 * 10**9)
    text = refusal(planned(4096), 64 * 10**9, planned)
    assert text is not None
    assert "weights alone" in text
    assert "--ctx" not in text


def test_a_refusal_may_suggest_a_tiny_context() -> None:
    planned = flash_planner()
    budget = planned(100).total
    text = refusal(planned(4096), budget, planned)
    assert text is not None
    suggested = int(text.rsplit("--ctx ", 1)[1])
    assert 100 <= suggested < 256
    assert planned(suggested).total <= budget
