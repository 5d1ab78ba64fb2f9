"""Compiles the executor, the headers and the kernels; what is built is kept, named by its contents."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.ksim.errors import KernelError
from tests.ksim.swizzles import swizzle_header
from tests.ksim.toolchain import INCLUDE, ROOT, cache_dir, compiler, kernel_flags

SWIZZLES = "ksim_swizzles.h"
MAX_MESSAGE = 6000


@dataclass
class BuildCounts:
    """How many kernels this process compiled, rather than found."""

    compiled: int = 0


counts = BuildCounts()
# Every kernel this process asked for, in order: its source and language.
requests: list[tuple[str, str]] = []
# Where compiled kernels are kept, if not in the cache: those of mutants are wanted once.
kernel_folder: Path | None = None


@dataclass(frozen=True, slots=True)
class KernelLibrary:
    """A compiled kernel, loaded."""

    library: ctypes.CDLL
    path: Path


def digest(*parts: object) -> str:
    """A name for something built from `parts`."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part if isinstance(part, bytes) else str(part).encode())
        hasher.update(b"\0")
    return hasher.hexdigest()[:24]


def built_once(target: Path, make: Callable[[Path], None]) -> Path:
    """`target`, made by `make(temporary path)` if it is not there; several processes may ask at once."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{os.getpid()}-{threading.get_ident()}-{target.name}")
        try:
            make(temporary)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    return target


def run_compiler(arguments: Sequence[str], what: str, text: str | None = None) -> None:
    """Runs clang++ on `arguments`, with `text` as its standard input.

    Raises:
        KernelError: it refuses; `what` begins the message.
    """
    done = subprocess.run(
        [compiler()[0], *arguments], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise KernelError(f"{what}:\n{done.stderr[:MAX_MESSAGE]}")


@functools.cache
def _headers_digest() -> str:
    headers = sorted(INCLUDE.rglob("*.h"))
    return digest(compiler()[1], swizzle_header(), *(path.read_bytes() for path in headers))


def runtime_library() -> Path:
    """The executor's shared library."""
    sources = sorted((ROOT / "runtime").iterdir())
    name = digest(compiler()[1], (INCLUDE / "ksim.h").read_bytes(), *(path.read_bytes() for path in sources))
    flags = ["-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    libraries = ["-lpthread", "-lm"]

    def make(target: Path) -> None:
        run_compiler(
            [*flags, "-o", str(target), str(ROOT / "runtime/runtime.cpp"), *libraries],
            "the executor does not compile",
        )

    return built_once(cache_dir() / f"libksim-{name}.so", make)


def _write(target: Path, text: str) -> None:
    target.write_text(text, encoding="utf-8")


@functools.cache
def generated_headers() -> Path:
    """The folder of the headers that are made, not written."""
    text = swizzle_header()
    folder = cache_dir() / f"headers-{digest(text)}"
    built_once(folder / SWIZZLES, lambda target: _write(target, text))
    return folder


@functools.cache
def _flags(language: str, check: str) -> tuple[str, ...]:
    return tuple(kernel_flags(language, check, generated_headers()))


# The headers' content is in the name already; a second clone in the same folder has other times.
_NO_TIMESTAMP = ("-Xclang", "-fno-pch-timestamp")


def precompiled_header(language: str, check: str) -> Path:
    """The language's header, precompiled for `check`."""
    flags = _flags(language, check)

    def make(target: Path) -> None:
        header = str(INCLUDE / f"{language}.h")
        arguments = [*flags, *_NO_TIMESTAMP, "-x", "c++-header", "-o", str(target), header]
        run_compiler(arguments, f"{language}.h does not compile")

    name = digest(_headers_digest(), *flags, *_NO_TIMESTAMP)
    return built_once(cache_dir() / f"{language}-{name}.pch", make)


def kernel_library(source: str, language: str, check: str) -> KernelLibrary:
    """Compiles and loads `source`, C++ that takes the language's header as read; each source once.

    Raises:
        KernelError: it does not compile; the message is clang's.
    """
    requests.append((source, language))
    return _kernel_library(source, language, check)


@functools.cache
def _kernel_library(source: str, language: str, check: str) -> KernelLibrary:
    flags = _flags(language, check)
    name = digest(_headers_digest(), *flags, source)
    folder = kernel_folder or cache_dir() / "kernels"

    def make(target: Path) -> None:
        arguments = ["-include-pch", str(precompiled_header(language, check)), "-shared", "-o", str(target)]
        # The executor and what is loaded already have the rest of the symbols.
        link = ["-nostdlib", "-lgcc", "-fno-sanitize-link-runtime"]
        run_compiler([*flags, *arguments, "-x", "c++", "-", *link], "kernel does not compile", source)
        counts.compiled += 1

    path = built_once(folder / f"{name}.so", make)
    return KernelLibrary(ctypes.CDLL(str(path)), path)
