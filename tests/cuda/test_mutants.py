"""What tests/cuda/mutants says about every kernel is about its present text, and runs still find it."""

from __future__ import annotations

import pytest

from tests.cuda.mutation_targets import RESULTS, targets
from tests.ksim import clang_missing
from tests.support.mutation.result import LARGEST_SHARE, read
from tests.support.mutation.run import assert_ends_as_before, assert_still_killed

_WHOLE_BLOCKS = "widths that build takes are whole blocks of rows, and guards against others let all pass"
_NO_MINIMA = "its blocks have no minima, and what stands for them is multiplied by 0"
_CASTS = "casts that say what a float beside them or a parameter does anyway"
_SAVED_WORK = "guards that keep out tokens that are none only save work, since nobody reads their products"
# Texts of which more mutants are equivalent, and why they stay as they are.
EXCEPTIONS: dict[str, str] = {
    "draw.from_top": "conditions that only save work, most with two mutants, and a loop that goes by eights",
    "draw.weigh": "a condition only saves additions of 0, and two of its mutants make them",
    "headers.cached_row": _WHOLE_BLOCKS,
    "headers.dense": "a small text, with a loop whose bound can be one less and a load that nothing uses",
    "headers.dense8": _CASTS,
    "headers.dense_tile": _SAVED_WORK,
    "headers.draw": "a loop over powers of two, and a barrier for callers that have none in between",
    "headers.expert_rows8": _CASTS,
    "headers.expert_tile": "casts, and loops over columns whose guards let no further one in",
    "headers.index_vector": "a small text with two loops over powers of two, whose bounds can be one less",
    "headers.iq2_xxs": _CASTS,
    "headers.iq2_xxs8": _NO_MINIMA,
    "headers.mxfp4": "a small text, with a cast beside a float and two forms of a size that meet at 2",
    "headers.mxfp4_8": _NO_MINIMA,
    "headers.q2_k": _CASTS,
    "headers.q4_k": _CASTS,
    "headers.rotary": _CASTS,
    "route": "lanes without a slot do as the others do, and what they find is kept by nobody",
    "run_experts.down": _WHOLE_BLOCKS,
    "run_experts.gate_up": _WHOLE_BLOCKS,
    "run_experts8.down": _WHOLE_BLOCKS,
    "run_experts8.gate_up": _WHOLE_BLOCKS,
    "sort_pairs.place": "a loop over warps asks for each if it is before, so that its bound can be one off",
    "tile_index_scores": "loops whose bounds can be off by one, and a guard that only saves work",
    "tile_project_f16": _SAVED_WORK,
    "top_k": "rows beyond the last have the least key, and a further round or an equal digit more takes none",
}
JUDGED = list(targets())
# A small text with cheap cases, every day; a few of all with the long tests: no survivor of draws, which
# would have to pass all of their slow cases.
KILLED_EVERY_DAY = "pick"
SAMPLED = JUDGED[1::5]

needs_clang = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))


@pytest.mark.parametrize("name", JUDGED)
def test_survivors_are_few_and_proved(name: str) -> None:
    result = read(targets()[name])
    assert [survivor.mutant for survivor in result.survivors if not survivor.proof] == []
    assert not result.too_many() or name in EXCEPTIONS


def test_survivors_are_few_in_all_but_the_exceptions() -> None:
    results = [read(targets()[name]) for name in JUDGED if name not in EXCEPTIONS]
    survivors = sum(len(result.survivors) for result in results)
    assert survivors <= LARGEST_SHARE * sum(result.counted() for result in results)


def test_exceptions_are_needed() -> None:
    assert [name for name in EXCEPTIONS if not read(targets()[name]).too_many()] == []


def test_every_text_is_broken() -> None:
    assert {path.stem for path in RESULTS.glob("*.json")} == set(JUDGED)


@needs_clang
def test_a_mutant_is_killed() -> None:
    assert_still_killed(targets()[KILLED_EVERY_DAY])


@needs_clang
@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLED)
def test_a_mutant_ends_as_before(name: str) -> None:
    assert_ends_as_before(targets()[name])
