"""A run judges mutants in other processes and keeps the outcome with proofs of equivalence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ksim import clang_missing
from tests.ksim.mutants import Mutant, mutants
from tests.ksim.mutation_run import read_equivalents, run_mutants, text_digest
from tests.unit.ksim.mutant_checks import TINY, check_tiny, check_words
from tests.unit.ksim.sample_kernels import RMS_NORM, check_rms_norm

needs_clang = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))


def word(text: str, occurrence: int = 0) -> Mutant:
    return Mutant("mask", 1, "a", "b", text, "line", occurrence)


def test_crashes_and_silence_kill_a_mutant() -> None:
    texts = [word("fine 1"), word("crash"), word("wrong"), word("hang"), word("fine 2")]
    result = run_mutants("words", "fine", texts, check_words, patience=1.0)
    assert [outcome.verdict for outcome in result.outcomes] == [
        "same code",
        "killed",
        "killed",
        "killed",
        "same code",
    ]
    assert [outcome.reason for outcome in result.outcomes[1:4]] == [
        "crashed",
        "AssertionError: []",
        "no answer in time",
    ]


def test_the_check_must_pass_the_unbroken_text() -> None:
    with pytest.raises(RuntimeError, match="does not pass the unbroken text"):
        run_mutants("words", "wrong", [word("fine")], check_words)


@needs_clang
def test_outcomes_of_a_kernel(tmp_path: Path) -> None:
    """The guard is not needed for 8 threads, so its mutants live; the last line is dead code."""
    found = mutants(TINY)
    proof = {("mask", "if (i < 8) y[i] = x[i] + 1.0f;", 0): "the grid has 8 threads"}
    result = run_mutants("tiny", TINY, found, check_tiny, workers=2, equivalents=proof)
    assert result.counts() == {
        "comparison": {"same code": 1, "survived": 1},
        "index": {"killed": 4, "same code": 2},
        "mask": {"survived": 1},
    }
    assert [mutant.rule for mutant in result.survivors()] == ["mask", "comparison"]
    assert [mutant.rule for mutant in result.unproved()] == ["comparison"]
    result.write(tmp_path / "tiny.json")
    assert read_equivalents(tmp_path / "tiny.json") == proof
    assert read_equivalents(tmp_path / "none.json") == {}
    kept = json.loads((tmp_path / "tiny.json").read_text(encoding="utf-8"))
    assert kept["source"] == text_digest(TINY)
    assert kept["survivors"][0]["equivalent"] == "the grid has 8 threads"
    assert kept["survivors"][1] == {
        "rule": "comparison",
        "text": "if (i < 8) y[i] = x[i] + 1.0f;",
        "occurrence": 0,
        "line": 2,
        "before": "<",
        "after": "<=",
        "equivalent": "",
    }


@needs_clang
def test_a_mutant_that_does_not_compile_does_not_count() -> None:
    result = run_mutants("tiny", TINY, [word(TINY.replace("x[i]", "x[]"))], check_tiny)
    assert [outcome.verdict for outcome in result.outcomes] == ["invalid"]
    assert result.survivors() == []


@needs_clang
@pytest.mark.long
def test_every_mutant_of_the_norm_is_killed_or_equivalent() -> None:
    line = "for (uint i = thread_number * 4; i < N; i += threads_per_threadgroup.x * 4) {"
    proof = {("bound", line, 0): "i and N are multiples of 4, so that i < N and i < N - 1 are the same"}
    found = mutants(RMS_NORM)
    result = run_mutants("rms_norm", RMS_NORM, found, check_rms_norm, workers=2, equivalents=proof)
    assert len(result.survivors()) == len(proof)
    assert result.unproved() == []
    # Casts of float to float change nothing.
    assert result.counts()["rounding"] == {"same code": 3}
    assert sum(counts.get("killed", 0) for counts in result.counts().values()) == len(found) - 4
