"""The compiler is found or its absence explained; what is built is kept and found again."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ksim import KernelError, build, clang_missing, toolchain
from tests.ksim.build import built_once, kernel_library
from tests.ksim.executor import build_kernel


@pytest.fixture
def copied_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The simulator's headers in a folder of the test, and a cache of its own."""
    folder = shutil.copytree(toolchain.INCLUDE, tmp_path / "include")
    monkeypatch.setenv("KSIM_CACHE", str(tmp_path / "cache"))
    kept = (build.generated_headers, build._flags)
    for module in (build, toolchain):
        monkeypatch.setattr(module, "INCLUDE", folder)
    for function in kept:
        function.cache_clear()
    yield folder
    for function in kept:
        function.cache_clear()


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """The compiler is looked for anew, before and after."""
    toolchain.compiler.cache_clear()
    yield
    toolchain.compiler.cache_clear()


@pytest.mark.usefixtures("fresh_compiler")
def test_no_compiler_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert clang_missing() == "the kernel simulator needs clang++ 16 or later (Debian: clang-19)"


@pytest.mark.usefixtures("fresh_compiler")
def test_an_old_compiler_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "clang++"
    old.write_text("#!/bin/sh\necho clang version 15.0.7\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setenv("KSIM_CXX", str(old))
    monkeypatch.setattr(shutil, "which", lambda name: str(old) if name in (str(old), "clang++") else None)
    with pytest.raises(KernelError, match="16 or later"):
        toolchain.compiler()
    old.write_text("#!/bin/sh\necho Debian clang version 16.0.1\n")
    assert toolchain.compiler()[0] == str(old)


def test_other_machines_are_a_reason_unless_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.delenv("KSIM_FORCE", raising=False)
    assert "Linux x86-64" in str(clang_missing())
    monkeypatch.setenv("KSIM_FORCE", "1")
    assert "Linux x86-64" not in str(clang_missing())


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSIM_CACHE", "/somewhere/else")
    assert toolchain.cache_dir() == Path("/somewhere/else")
    monkeypatch.delenv("KSIM_CACHE")
    assert toolchain.cache_dir().parts[-2:] == ("ds4", "ksim")


def test_two_builders_of_one_file_both_get_a_whole_one(tmp_path: Path) -> None:
    both_inside = threading.Barrier(2, timeout=30)

    def make(target: Path) -> None:
        both_inside.wait()
        target.write_text("whole")

    other = threading.Thread(target=built_once, args=(tmp_path / "made", make))
    other.start()
    assert built_once(tmp_path / "made", make).read_text() == "whole"
    other.join()
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def make(target: Path) -> None:
        target.write_text("half")
        raise KernelError("no")

    with pytest.raises(KernelError):
        built_once(tmp_path / "made", make)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))
def test_a_kernel_is_compiled_once_for_each_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "kernel_folder", tmp_path)
    source = 'extern "C" __attribute__((visibility("default"))) void ksim_entry(void**) { /* once */ }\n'
    before = build.counts.compiled
    first = build_kernel(source, "metal", "fast")
    assert kernel_library(source, "metal", "fast") is first
    assert build.counts.compiled == before + 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".so"]
    assert build.requests[-2:] == [(source, "metal")] * 2


@pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))
def test_a_later_clone_in_the_same_folder_takes_the_header_that_was_kept(copied_headers: Path) -> None:
    header = build.precompiled_header("cuda", "fast")
    for path in copied_headers.rglob("*.h"):
        os.utime(path, (0, 0))
    assert build.precompiled_header("cuda", "fast") == header
    text = "int of_a_later_clone() { return 1; }"
    arguments = [
        *build._flags("cuda", "fast"),
        "-include-pch",
        str(header),
        "-fsyntax-only",
        "-x",
        "c++",
        "-",
    ]
    build.run_compiler(arguments, "the kept header is refused", text)
