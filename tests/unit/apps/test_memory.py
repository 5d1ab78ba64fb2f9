"""A plan that does not fit is refused before anything is allocated, with the flag that would fit."""

from dataclasses import replace

import pytest

from apps.backend import planner_of_file
from apps.memory import GIB, NotEnoughMemory, check_fits, memory_budget, parse_size
from shared.errors import UsageError
from shared.session import MemoryPlanner
from tests.support.golden import tiny_q2


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64GB", 64 * GIB),
        ("64g", 64 * GIB),
        ("512MiB", 512 * 2**20),
        ("1.5 kb", 1536),
        ("1000000", 1000000),
        ("2T", 2**41),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1e9", "64GBx", "GB", "9" * 16, "999999999T", "٣GB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="is not a memory size"):
        parse_size(text)


def test_the_system_keeps_a_share():
    assert memory_budget("100GB") == 100 * GIB - int(8 * GIB)
    assert memory_budget("16GB") == 14 * GIB
    assert memory_budget("1GB") == GIB * 3 // 4
    assert 0 < memory_budget() < memory_budget("1000TB")


def planner(prefill_chunk: int | None = None) -> MemoryPlanner:
    return planner_of_file("reference", tiny_q2(), prefill_chunk)[1]


def test_a_context_too_large_names_one_that_fits():
    planned, budget = planner(), memory_budget("1GB")
    with pytest.raises(NotEnoughMemory, match=r"use --ctx \d+$") as refused:
        check_fits(planned(1_000_000), budget, planned)
    fitting = int(str(refused.value).rsplit(maxsplit=1)[-1])
    check_fits(planned(fitting), budget, planned)
    with pytest.raises(NotEnoughMemory):
        check_fits(planned(fitting + 4096), budget, planned)


def test_the_prefill_chunk_counts():
    whole, small = planner(0)(32768), planner(256)(32768)
    assert (whole.prefill_chunk, small.prefill_chunk) == (32768, 256)
    assert small.scratch < whole.scratch


def test_sessions_and_checkpoints_count() -> None:
    planned = planner()
    one = planned(32768)
    plan = replace(one, sessions=3, checkpoints=GIB // 2)
    assert plan.total == one.total + 2 * (one.raw + one.compressed) + GIB // 2
    check_fits(plan, plan.total, planned)
    with pytest.raises(
        NotEnoughMemory, match=r"^3 sessions of 32768 tokens need .* use --ctx \d+$"
    ) as refused:
        check_fits(plan, plan.total - 1, planned)
    fitting = int(str(refused.value).rsplit(maxsplit=1)[-1])
    for context, fits in ((fitting, True), (fitting + 256, False)):
        there = replace(planned(context), sessions=3, checkpoints=GIB // 2)
        assert (there.total <= plan.total - 1) is fits
    with pytest.raises(NotEnoughMemory, match=r"lower --kv-checkpoint-mb$"):
        check_fits(plan, GIB // 2, planned)
