"""What tests/kernels/mutants says about every kernel is about its present text, and runs still find it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.kernels.mutation_targets import RESULTS, targets, texts_without_target
from tests.ksim import clang_missing
from tests.ksim.mutants import mutants
from tests.support.mutation.result import LARGEST_SHARE, read
from tests.support.mutation.run import assert_ends_as_before, assert_still_killed

# Texts of which more mutants are equivalent, and why they stay as they are.
_SKIPPED_BLOCKS = "blocks without rows are skipped to save time, and both bounds of that test can move unseen"
_ROUNDED_UP = "a loop's bound is rounded up, and guards inside it let nothing through a round further"
EXCEPTIONS: dict[str, str] = {
    "experts_prefill.gate_up": _SKIPPED_BLOCKS,
    "experts_prefill.down": _SKIPPED_BLOCKS,
    "experts_prefill.tiles": _SKIPPED_BLOCKS,
    "headers.collapse": _ROUNDED_UP,
    "headers.mix_slice": _ROUNDED_UP,
    "hyper_collapse": "the two groups of a token, and the two copies of its matrix, can change places",
    "route.scored": "a choice too many is kept by nobody, and the same expert chosen twice has one share",
    "index_scores": "rows that no query sees are skipped to save time, and tests for that can move unseen",
}
# Small texts with cheap cases, of different kinds.
KILLED_EVERY_DAY = ("stack_rows", "route.hashed", "headers.q4_k_part")

needs_clang = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))


@pytest.mark.parametrize("name", targets())
def test_survivors_are_few_and_proved(name: str) -> None:
    result = read(targets()[name])
    assert [survivor.mutant for survivor in result.survivors if not survivor.proof] == []
    assert not result.too_many() or name in EXCEPTIONS


def test_survivors_are_few_in_all() -> None:
    results = [read(target) for target in targets().values()]
    survivors = sum(len(result.survivors) for result in results)
    assert survivors <= LARGEST_SHARE * sum(result.counted() for result in results)


def test_exceptions_are_needed() -> None:
    assert [name for name in EXCEPTIONS if not read(targets()[name]).too_many()] == []


def test_every_text_is_broken() -> None:
    assert {path.stem for path in RESULTS.glob("*.json")} == set(targets())
    assert [path for path in texts_without_target() if mutants(path.read_text(encoding="utf-8"))] == []


def test_every_module_of_cases_is_run() -> None:
    run = {module for target in targets().values() for module in target.modules}
    modules = [path.stem for path in Path(__file__).parent.glob("test_*.py")]
    with_cases = {name for name in modules if hasattr(import_module(f"tests.kernels.{name}"), "CASES")}
    assert with_cases == run | {"test_run_experts"}  # only chooses between the two


@needs_clang
@pytest.mark.parametrize("name", KILLED_EVERY_DAY)
def test_a_mutant_is_killed(name: str) -> None:
    assert_still_killed(targets()[name])


@needs_clang
@pytest.mark.long
@pytest.mark.parametrize("name", list(targets())[::2])
def test_a_mutant_of_every_other_text_ends_as_before(name: str) -> None:
    assert_ends_as_before(targets()[name])
