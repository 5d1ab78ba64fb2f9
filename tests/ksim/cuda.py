"""cupy.RawModule and RawKernel on the CPU, over numpy arrays."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.ksim.build import KernelLibrary
from tests.ksim.errors import KernelError
from tests.ksim.executor import (
    CUDA,
    CUDA_STATIC_SHARED_MEMORY,
    FLUSHES_SUBNORMALS,
    FULL,
    Place,
    Plan,
    build_kernel,
)
from tests.ksim.ptx import rewrite_asm
from tests.ksim.rewrite import rewrite_shared, strip_comments

_INCLUDE = re.compile(
    r"#\s*include\s*[<\"](?:cuda_fp16|cuda_bf16|mma|cooperative_groups|cuda_runtime|math_constants|stdint|cstdint"
    r"|cuda_pipeline)\w*(?:\.h)?[>\"]"
)
_BOUNDS = r"(?:__launch_bounds__\s*\([^)]*\)\s*)?"
_KERNEL = re.compile(
    r"(template\s*<[^;{}]*>\s*)?(?:extern\s+\"C\"\s+)?__global__\s+"
    + _BOUNDS
    + r"(?:static\s+|inline\s+)?void\s+"
    + _BOUNDS
    + r"(\w+)\s*\("
)
VALUE, POINTER_TO_CONST = 0, 1
FLUSHING = "-ftz=true"  # the option for float32 numbers without subnormals
MAX_PARAMETERS = 80


@dataclass(frozen=True, slots=True)
class _Parameter:
    kind: int  # VALUE, POINTER_TO_CONST or pointer
    is_float: bool
    size: int  # of the value or of the element

    def words(self) -> str:
        if self.kind != VALUE:
            return f"pointer to {self.size}-byte elements"
        return f"{self.size}-byte {'float' if self.is_float else 'integer'}"


class RawModule:
    """CUDA source of one or more kernels, compiled at first use.

    Args:
        code: the source, or None where `path` names its file.
        path: a file to read.
        options: compiler options; -D ones and -ftz=true are obeyed, others ignored.
        name_expressions: instances of kernel templates, for get_function.
        check: "fast" or "full", as for metal_kernel.
        seed: order of threads, as for metal_kernel.
    """

    def __init__(
        self,
        *,
        code: str | None = None,
        path: str | None = None,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        name_expressions: Sequence[str] | None = None,
        check: str | None = None,
        seed: int | None = None,
    ) -> None:
        if code is None and path is None:
            raise ValueError("RawModule takes code or the path of a file")
        self.code = code if code is not None else Path(str(path)).read_text(encoding="utf-8")
        self.options = tuple(options)
        self.name_expressions = list(name_expressions or [])
        self.check = check or os.environ.get("KSIM_CHECK", "fast")
        self.seed = int(os.environ.get("KSIM_SEED", "0")) if seed is None else seed
        self._kernel: KernelLibrary | None = None
        self._numbers: dict[str, int] = {}

    def text(self) -> str:
        """The C++ translation unit."""
        source = rewrite_asm(rewrite_shared(_INCLUDE.sub("", strip_comments(self.code)), "__shared__"))
        plain = [name for template, name in _KERNEL.findall(source) if not template]
        names = list(dict.fromkeys([*plain, *self.name_expressions]))
        self._numbers = {name: number for number, name in enumerate(names)}
        defines = [option[2:].replace("=", " ", 1) for option in self.options if option.startswith("-D")]
        text = (
            "".join(f"#define {define}\n" for define in defines)
            + f'#line 1 "kernel.cu"\n{source}\n#line 1 "entry"\n'
        )
        export = 'extern "C" __attribute__((visibility("default"))) void'
        for name, number in self._numbers.items():
            text += (
                f"{export} ksim_entry_{number}(void** arguments) {{ ksim::invoke(&{name}, arguments); }}\n"
            )
            text += f"{export} ksim_describe_{number}(int* out) {{ ksim::describe(&{name}, out); }}\n"
        return text

    def compile(self) -> KernelLibrary:
        """Compiles the module, once."""
        if self._kernel is None:
            self._kernel = build_kernel(self.text(), "cuda", self.check)
        return self._kernel

    def get_function(self, name: str) -> RawKernel:
        """The kernel of that name, or of that name expression."""
        self.compile()
        if name not in self._numbers:
            raise KernelError(f"no kernel {name!r} in the module: {', '.join(self._numbers)}")
        return RawKernel(None, name, module=self)

    def number_of(self, name: str) -> int:
        """The number in the names of a kernel's entry points."""
        return self._numbers[name]


class RawKernel:
    """One kernel; call it as CuPy's with grid (blocks), block (threads) and arguments.

    Arrays are numpy's, C-contiguous; those passed as pointers to non-const are written back.
    """

    def __init__(
        self,
        code: str | None,
        name: str,
        options: Sequence[str] = (),
        *,
        module: RawModule | None = None,
        check: str | None = None,
        seed: int | None = None,
    ) -> None:
        self.module = module or RawModule(code=code, options=options, check=check, seed=seed)
        self.name = name
        self.max_dynamic_shared_size_bytes = CUDA_STATIC_SHARED_MEMORY
        self._parameters: list[_Parameter] | None = None
        self._plans: dict[tuple[int, ...], Plan] = {}

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        """Runs the kernel and writes its results into the arrays.

        Raises:
            KernelError: the arguments do not fit the parameters, or the kernel does something wrong.
        """
        parameters = self._described()
        if len(args) != len(parameters):
            raise KernelError(f"{self.name} takes {len(parameters)} arguments, {len(args)} given")
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise KernelError(
                f"shared_mem={shared_mem} needs max_dynamic_shared_size_bytes raised from "
                f"{self.max_dynamic_shared_size_bytes}"
            )
        arrays: dict[int, Any] = {}
        values: dict[int, ctypes.Array[ctypes.c_char]] = {}
        for index, (argument, parameter) in enumerate(zip(args, parameters, strict=True)):
            if isinstance(argument, np.ndarray):
                arrays[index] = self._array(index, argument, parameter)
            elif argument is not None:
                values[index] = self._value(index, argument, parameter)
        plan = self._plan(tuple(arrays), parameters)
        for index in range(len(args)):
            plan.arguments[index] = ctypes.addressof(values[index]) if index in values else None
        limit = max(CUDA_STATIC_SHARED_MEMORY, shared_mem)
        sources = [(array.ctypes.data, array.nbytes) for array in arrays.values()]
        with plan.launched(
            sources,
            _three(grid),
            _three(block),
            seed=self.module.seed,
            shared_limit=limit,
            dynamic_shared=shared_mem,
        ) as addresses:
            for (index, array), address in zip(arrays.items(), addresses, strict=True):
                if parameters[index].kind != POINTER_TO_CONST:
                    ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def _described(self) -> list[_Parameter]:
        if self._parameters is None:
            library = self.module.compile().library
            fields = (ctypes.c_int * (3 * MAX_PARAMETERS + 1))()
            getattr(library, f"ksim_describe_{self.module.number_of(self.name)}")(fields)
            end = list(fields).index(-1)
            self._parameters = [
                _Parameter(fields[i], bool(fields[i + 1]), fields[i + 2]) for i in range(0, end, 3)
            ]
        return self._parameters

    def _plan(self, arrays: tuple[int, ...], parameters: Sequence[_Parameter]) -> Plan:
        plan = self._plans.get(arrays)
        if plan is None:
            places = [
                Place(f"argument {i}", i, writable=parameters[i].kind != POINTER_TO_CONST) for i in arrays
            ]
            entry = f"ksim_entry_{self.module.number_of(self.name)}"
            flags = CUDA | (FULL if self.module.check == "full" else 0)
            flags |= FLUSHES_SUBNORMALS if FLUSHING in self.module.options else 0
            plan = self._plans[arrays] = Plan(self.module.compile(), entry, places, len(parameters), flags)
        return plan

    def _array(self, index: int, array: Any, parameter: _Parameter) -> Any:
        if parameter.kind == VALUE:
            raise KernelError(f"{self.name} argument {index}: an array passed for a {parameter.words()}")
        if not array.flags.c_contiguous:
            raise KernelError(f"{self.name} argument {index}: the array is not C-contiguous")
        return array

    def _value(self, index: int, value: Any, parameter: _Parameter) -> ctypes.Array[ctypes.c_char]:
        """The value's bytes; CuPy passes a Python int as 8 bytes and a Python float as a double."""
        if not isinstance(value, np.generic):
            value = {bool: np.bool_, int: np.int64, float: np.float64}[type(value)](value)
        wrong_kind = parameter.size >= 4 and (value.dtype.kind == "f") != parameter.is_float
        if parameter.kind != VALUE or value.itemsize != parameter.size or wrong_kind:
            raise KernelError(f"{self.name} argument {index}: {value.dtype} passed for a {parameter.words()}")
        return ctypes.create_string_buffer(value.tobytes(), value.itemsize)


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*map(int, extents), 1, 1)[:3]
    return x, y, z
