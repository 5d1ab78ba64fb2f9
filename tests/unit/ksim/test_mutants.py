"""Mutants: every rule finds its places, nothing else is touched, and all differ."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ksim.mutants import Mutant, mutants, sample
from tests.unit.ksim.sample_kernels import BLOCK_DOT, PTX_PRODUCT, RMS_NORM, TILE_PRODUCT

PIECES = (
    "for (uint i = lane; i < count; i += 32) {",
    "for (int i = 4; i >= 0; i--) y[i] = 0;",
    "while (missing > counts[bin]) { bin++; }",
    "if (i < n && j <= m) { y[i] = x[i + 1]; }",
    "}",
    "float s = i < n ? x[i] : 0.0f;",
    "float4 v = float4(*(const device half4*)(x + i * 4));",
    "y[i] = half(rint(v.x) * 2.0f);",
    "threadgroup_barrier(mem_flags::mem_threadgroup);",
    "if (a > b || (a == b && i < j)) swap = true;",
    "threadgroup float part[32], other[N + 1];",
    "// for (int i = 0; i < 3; i++) x[i] = 0;",
    "#define LIMIT (x[3] < 4)",
    "uint bits = as_type<uint>(s);",
    "template <typename T> inline T f(T a) { return a; }",
)


def described(text: str, rounding: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    return [(mutant.rule, mutant.before, mutant.after) for mutant in mutants(text, rounding)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "threadgroup_barrier(mem_flags::mem_none);",
            [("barrier", "threadgroup_barrier(mem_flags::mem_none);", ";")],
        ),
        (
            "simdgroup_barrier(mem_flags::mem_threadgroup);",
            [("barrier", "simdgroup_barrier(mem_flags::mem_threadgroup);", ";")],
        ),
        (
            "__syncthreads(); __syncwarp(0xffu);",
            [("barrier", "__syncthreads();", ";"), ("barrier", "__syncwarp(0xffu);", ";")],
        ),
        ("bool a = b < c;", [("comparison", "<", "<=")]),
        ("bool a = b >= c;", [("comparison", ">=", ">")]),
        ("bool a = b == c;", [("tie", "==", "!=")]),
        (
            "bool a = b > c || (b == c && i < j);",
            [
                ("comparison", ">", ">="),
                ("tie", ">", "<"),
                ("tie", "==", "!="),
                ("comparison", "<", "<="),
                ("tie", "<", ">"),
            ],
        ),
        ("y = x[i];", [("index", "i", "i + 1"), ("index", "i", "i - 1")]),
        (
            "y = x[i * 2 + j];",
            [("index", "i * 2 + j", "(i * 2 + j) + 1"), ("index", "i * 2 + j", "(i * 2 + j) - 1")],
        ),
        (
            "v = *(const device uint2*)(x + i);",
            [("index", "x + i", "(x + i) + 1"), ("index", "x + i", "(x + i) - 1")],
        ),
        ("for (int i = 0; i < n; i++) {}", [("comparison", "<", "<="), ("bound", "n", "n - 1")]),
        ("for (int i = n; i > 2; i--) {}", [("comparison", ">", ">="), ("bound", "2", "2 + 1")]),
        ("while (i <= n / 2) {}", [("comparison", "<=", "<"), ("bound", "n / 2", "(n / 2) + 1")]),
        ("y = half(x + 1);", [("rounding", "half(x + 1)", "(x + 1)")]),
        ("y = metal::rint(x);", [("rounding", "metal::rint(x)", "(x)")]),
        ("y = (half)x;", [("rounding", "(half)", "")]),
        ("y = as_type<uint>(x);", [("rounding", "as_type<uint>(", "uint(")]),
        ("y = round_to(x * s, 3, 1.0f);", [("rounding", "round_to(x * s, 3, 1.0f)", "(x * s)")]),
        ("if (inside) { y = 1; }", [("mask", "inside", "true")]),
        ("if (a && (b || c)) y = 1;", [("mask", "a", "true"), ("mask", "(b || c)", "true")]),
        ("y = ok ? x : 0.0f;", [("mask", "ok ? x : 0.0f", "(x)")]),
        ("return ok ? -INFINITY : x;", [("mask", "ok ? -INFINITY : x", "(x)")]),
        ("f(ok ? x : T(0), 3);", [("mask", "ok ? x : T(0)", "(x)")]),
        ("threadgroup float s[32], t[N];", []),
        ("using Four = vec<float, 4>;", []),
        ("inline float rint(float x) { return x; }", []),
        ("float4 v = float4(a, b, c, d);", []),
        ("size_t i = size_t(row) * uint(n);", []),
        ("// y = x[i] < 3;", []),
        ("#define N (x[3] < 4)\n", []),
        ("template <int N> void f() {}", []),
    ],
)
def test_each_rule_finds_its_places(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert described(text, ("round_to",)) == expected


def test_a_type_of_the_kernels_own_counts_as_a_cast() -> None:
    text = "using Part = vec<half, 4>;\ny = Part(x);\n"
    assert described(text) == [("rounding", "Part(x)", "(x)")]


def test_a_mutant_knows_its_place() -> None:
    text = "a = 1;\n  b = x[i] + y[i];\nb = x[i] + y[i];\n"
    found = mutants(text)
    assert {mutant.line for mutant in found} == {2, 3}
    assert found[0].key == ("index", "b = x[i] + y[i];", 0)
    assert [mutant.occurrence for mutant in found] == list(range(8))
    assert found[0].text == "a = 1;\n  b = x[i + 1] + y[i];\nb = x[i] + y[i];\n"


def test_a_barrier_over_two_lines_leaves_two_lines() -> None:
    text = "threadgroup_barrier(\n  mem_flags::mem_threadgroup);\ny = 1;"
    (mutant,) = mutants(text)
    assert mutant.text == ";\n\ny = 1;"


@pytest.mark.parametrize("text", [RMS_NORM, TILE_PRODUCT, BLOCK_DOT, PTX_PRODUCT])
def test_samples_have_mutants_of_many_rules(text: str) -> None:
    rules = {mutant.rule for mutant in mutants(text)}
    assert {"barrier", "comparison", "index", "bound"} <= rules


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=12))
def test_all_mutants_differ_in_one_place_and_come_in_order(pieces: list[str]) -> None:
    text = "\n".join(pieces) + "\n"
    found = mutants(text)
    texts = [mutant.text for mutant in found]
    assert text not in texts
    assert len(set(texts)) == len(texts)
    assert len({mutant.key for mutant in found}) == len(found)
    assert [mutant.line for mutant in found] == sorted(mutant.line for mutant in found)
    assert found == mutants(text)
    for mutant in found:
        _differs_in_one_place(text, mutant)


def _differs_in_one_place(text: str, mutant: Mutant) -> None:
    before, after = text.split("\n"), mutant.text.split("\n")
    assert len(before) == len(after)
    changed = [line for line, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b]
    assert changed == [mutant.line]
    source = before[mutant.line - 1]
    assert source.strip() == mutant.source
    assert not source.startswith(("//", "#"))
    assert mutant.before in source


@given(st.integers(0, 40), st.integers(0, 5))
def test_a_sample_is_fair_and_repeatable(count: int, seed: int) -> None:
    found = mutants(RMS_NORM)
    chosen = sample(found, count, seed)
    assert chosen == sample(found, count, seed)
    assert len(chosen) == min(count, len(found)) == len(set(chosen))
    assert set(chosen) <= set(found)
    all_rules = Counter(mutant.rule for mutant in found)
    if count >= len(all_rules):
        assert {mutant.rule for mutant in chosen} == set(all_rules)
