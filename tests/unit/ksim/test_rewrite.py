"""Kernel text becomes C++: threadgroup variables, float literals, comments, inline PTX, swizzles."""

from __future__ import annotations

import pytest

from tests.ksim import KernelError
from tests.ksim.ptx import rewrite_asm
from tests.ksim.rewrite import float_literals, rewrite_shared, split_at_commas, strip_comments
from tests.ksim.swizzles import swizzle_header


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("threadgroup float a[4];", "KSIM_SHARED(1, float, a, [4], 0);"),
        (
            "{ threadgroup half4 a[N][2], b; }",
            "{ KSIM_SHARED(1, half4, a, [N][2], 0); KSIM_SHARED(2, half4, b, , 0); }",
        ),
        (
            "threadgroup metal::vec<T, 4> a[3];",
            "using ksim_type_1 = metal::vec<T, 4>; KSIM_SHARED(1, ksim_type_1, a, [3], 0);",
        ),
        ("threadgroup alignas(16) uchar a[K * (N + 1)];", "KSIM_SHARED(1, uchar, a, [K * (N + 1)], 16);"),
        ("x = 1;\nthreadgroup atomic_uint\n  a;", "x = 1;\nKSIM_SHARED(1, atomic_uint, a, , 0);\n"),
        ("threadgroup float* p = a;", "threadgroup float* p = a;"),
        ("const threadgroup float& p = a[1];", "const threadgroup float& p = a[1];"),
        (
            "f((threadgroup float*)a, (const threadgroup uint2*) b);",
            "f((threadgroup float*)a, (const threadgroup uint2*) b);",
        ),
        (
            "void f(threadgroup float* p [[threadgroup(0)]]) {}",
            "void f(threadgroup float* p [[threadgroup(0)]]) {}",
        ),
        (
            "threadgroup_barrier(mem_flags::mem_threadgroup);",
            "threadgroup_barrier(mem_flags::mem_threadgroup);",
        ),
    ],
)
def test_threadgroup_declarations(text: str, expected: str) -> None:
    assert rewrite_shared(text, "threadgroup") == expected


@pytest.mark.parametrize(
    "text",
    [
        "float threadgroup a[4];",
        "threadgroup struct { int a; } b;",
        "int x; int y threadgroup;",
        "f(threadgroup a);",
    ],
)
def test_a_declaration_that_would_be_missed_is_an_error(text: str) -> None:
    with pytest.raises(KernelError, match="not understood"):
        rewrite_shared(text, "threadgroup")


def test_shared_memory_of_cuda() -> None:
    text = "__shared__ __align__(16) half a[16][16], b;\nextern __shared__ float c[];"
    assert rewrite_shared(text, "__shared__") == (
        "KSIM_SHARED(1, half, a, [16][16], 16); KSIM_SHARED(2, half, b, , 16);\nKSIM_DYN(float, c);"
    )


def test_floats_without_a_suffix_get_one() -> None:
    text = "a = 1.0 + .5 + 1e-3 + 2.f + 3.0h - v.x4 + 0x1e3 + 12 + t1.5;"
    assert float_literals(text) == "a = 1.0f + .5f + 1e-3f + 2.f + 3.0h - v.x4 + 0x1e3 + 12 + t1.5;"


def test_comments_go_and_lines_stay() -> None:
    text = 'a; // threadgroup float x;\nb; /* one\ntwo */ c; "// kept"'
    stripped = strip_comments(text)
    assert stripped.split() == ["a;", "b;", "c;", '"//', 'kept"']
    assert [len(line) for line in stripped.split("\n")] == [len(line) for line in text.split("\n")]


def test_commas_in_brackets_do_not_split() -> None:
    assert split_at_commas("a[f(1, 2)], b<c, d>, {1, 2}") == ["a[f(1, 2)]", " b<c, d>", " {1, 2}"]


def test_inline_ptx() -> None:
    instruction = "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
    text = f'asm volatile("{instruction}" : "=r"(a), "=r"(b[1]) : "r"(p));'
    rewritten = rewrite_asm(text)
    assert "ksim_ptx::ldmatrix_x2_trans(a, b[1], ksim_ptx::sh(p));" in rewritten
    assert "static_assert(sizeof(b[1]) == 4" in rewritten
    assert 'unsupported PTX: %s", "bar.sync"' in rewrite_asm('asm("bar.sync 0;");')


def test_swizzles_are_all_there() -> None:
    lines = swizzle_header().splitlines()
    assert "KSIM_S2(zx, 2, 0)" in lines
    assert sum(line.startswith("KSIM_S") for line in lines) == sum(
        n**2 + n**3 + n**4 + n**n for n in (2, 3, 4)
    )
