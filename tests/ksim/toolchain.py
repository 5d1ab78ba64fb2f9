"""Finds the compiler, decides its flags, and says where built things are kept.

Environment: KSIM_CXX names another clang++, KSIM_CACHE another folder, KSIM_FORCE=1 tries machines other than
Linux x86-64.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs

from tests.ksim.errors import KernelError

ROOT = Path(__file__).resolve().parent
INCLUDE = ROOT / "include"
LANGUAGES = ("metal", "cuda")
CHECKS = ("fast", "full")
OLDEST_CLANG = 16


def cache_dir() -> Path:
    """The folder of compiled kernels and headers."""
    named = os.environ.get("KSIM_CACHE")
    return Path(named) if named else Path(platformdirs.user_cache_dir("ds4")) / "ksim"


@functools.cache
def compiler() -> tuple[str, str]:
    """A clang++ of version 16 or later and its version line.

    Raises:
        KernelError: there is none.
    """
    for name in (
        os.environ.get("KSIM_CXX"),
        "clang++-19",
        "clang++-18",
        "clang++-17",
        "clang++-16",
        "clang++",
    ):
        path = shutil.which(name) if name else None
        if path is None:
            continue
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"clang version (\d+)", version)
        if found and int(found.group(1)) >= OLDEST_CLANG:
            return path, version
    raise KernelError(f"the kernel simulator needs clang++ {OLDEST_CLANG} or later (Debian: clang-19)")


def clang_missing() -> str | None:
    """Why kernels cannot be simulated on this machine, or None if they can."""
    forced = os.environ.get("KSIM_FORCE") == "1"
    if not forced and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "the kernel simulator runs on Linux x86-64 (KSIM_FORCE=1 tries elsewhere)"
    try:
        compiler()
    except KernelError as error:
        return str(error)
    return None


def kernel_flags(language: str, check: str, generated: Path) -> list[str]:
    """The flags a kernel in `language` ("metal", "cuda") is compiled with for `check` ("fast", "full").

    `generated` is the folder of the headers that are made, not written.
    """
    flags = ["-std=c++20", "-O1", "-g1", "-fPIC", "-fdeclspec", "-fno-exceptions", "-fno-rtti"]
    flags += ["-ffp-contract=on", "-fno-strict-aliasing", "-fno-omit-frame-pointer"]
    # Each half and bfloat operation is rounded, as on the device.
    flags += ["-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none"]
    # Without unique traps clang merges them, and the line of the mistake is lost.
    flags += [
        "-fsanitize=bounds,alignment,shift-exponent",
        "-fsanitize-trap=bounds,alignment,shift-exponent",
        "-mllvm",
        "-ubsan-unique-traps",
    ]
    # An array larger than the stack touches the page that stops it, not a neighbour's stack.
    flags += ["-fstack-clash-protection"]
    # What nobody set is garbage, the same garbage each time.
    flags += ["-ftrivial-auto-var-init=pattern"]
    flags += ["-Wno-everything", "-Werror=return-type", "-Werror=uninitialized"]
    flags += [f"-I{INCLUDE}", f"-I{generated}"]
    if platform.machine() == "x86_64":
        flags += ["-mavx2", "-mfma", "-mf16c"]
    if language == "metal":
        flags += ["-Xclang", "-cl-single-precision-constant"]
    if check == "full":
        # The executor takes the place of the thread sanitizer's library.
        flags += ["-DKSIM_FULL", "-fsanitize=thread", "-mllvm", "-tsan-instrument-func-entry-exit=false"]
        flags += ["-mllvm", "-tsan-instrument-atomics=false"]
    return flags
