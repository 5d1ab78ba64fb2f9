"""NVIDIA's run-time compiler through ctypes: whether it takes a kernel, without a GPU or a driver.

Found in the wheels of the test dependencies, one for each major version of CUDA.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

# Major version of CUDA -> the library's place below the `nvidia` namespace package.
_PLACES = {12: "cuda_nvrtc/lib/libnvrtc.so.12", 13: "cu13/lib/libnvrtc.so.13"}
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
# What CuPy adds to the options that it is given: float32 subnormals count as zero.
CUPY_OPTIONS = ("-ftz=true", "--device-as-default-execution-space")
_COMPILED = 0


def library_path(major: int) -> Path | None:
    """The compiler of CUDA `major`, if its wheel is installed."""
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / _PLACES[major]
        if path.exists():
            return path
    return None


class Refused(AssertionError):
    """The compiler does not take a kernel; the message is its log."""


@dataclass(frozen=True)
class Compiler:
    """One version of NVRTC."""

    library: ctypes.CDLL

    @classmethod
    def of(cls, major: int) -> Compiler:
        path = library_path(major)
        assert path is not None, f"NVRTC {major} is not installed"
        return cls(ctypes.CDLL(str(path)))

    def cubin(self, text: str, name: str, architecture: str, options: Sequence[str]) -> bytes:
        """Machine code of `text` for an architecture such as sm_80. Raises Refused, also for warnings."""
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        try:
            given = [f"--gpu-architecture={architecture}", *options, *CUPY_OPTIONS]
            arguments = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
            result = self.library.nvrtcCompileProgram(program, len(given), arguments)
            log = self._read(program, "ProgramLog").rstrip(b"\0\n").decode(errors="replace")
            if result != _COMPILED or log:
                raise Refused(f"{name} for {architecture}: {log or result}")
            return self._read(program, "CUBIN")
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, content)
        return content.raw

    def _call(self, function: str, *arguments: object) -> None:
        result = getattr(self.library, function)(*arguments)
        assert result == _COMPILED, f"{function} fails with {result}"
