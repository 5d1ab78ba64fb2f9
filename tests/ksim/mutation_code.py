"""The machine code of kernels, to tell whether two texts are one kernel to the compiler."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Sequence

from tests.ksim.build import generated_headers
from tests.ksim.errors import KernelError
from tests.ksim.toolchain import INCLUDE, compiler, kernel_flags

# What shows in the assembly and is no code: names made from a kernel's text, files, comments.
_NAME = re.compile(r"custom_kernel_\w+")
_NOISE = re.compile(r"^\s*(?:\.file|\.ident|\.loc|\.cfi_\w+|#).*$|[ \t]*#.*$", re.MULTILINE)


@functools.cache
def _assembly(source: str, language: str) -> str:
    flags = [flag for flag in kernel_flags(language, "fast", generated_headers()) if "sanitize" not in flag]
    flags = [flag for flag in flags if flag not in ("-g1", "-O1", "-mllvm", "-ubsan-unique-traps")]
    command = [compiler()[0], *flags, "-O2", "-S", "-o", "-", "-include", str(INCLUDE / f"{language}.h")]
    command += ["-x", "c++", "-"]
    text = _NAME.sub("custom_kernel", source)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KernelError(f"kernel does not compile:\n{done.stderr[:2000]}")
    return _NOISE.sub("", done.stdout)


def machine_code(requests: Sequence[tuple[str, str]]) -> list[str]:
    """The optimised assembly of each (source, language), without the simulator's checks."""
    return [_assembly(source, language) for source, language in requests]
