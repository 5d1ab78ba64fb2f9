"""mx.fast.metal_kernel on the CPU: the same arguments, the same generated signature, the same results."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.ksim.arrays import (
    HostArray,
    bits_of,
    dtype_name,
    host_array,
    is_mx,
    metal_type,
    output_array,
    storage_dtype,
)
from tests.ksim.executor import FLUSHES_SUBNORMALS, FULL, METAL_THREADGROUP_MEMORY, Place, Plan, build_kernel
from tests.ksim.rewrite import float_literals, rewrite_shared, strip_comments
from tests.ksim.toolchain import CHECKS

# MLX adds a parameter for each of these whose name occurs anywhere in the body.
ATTRIBUTES = {
    "dispatch_quadgroups_per_threadgroup": "uint",
    "dispatch_simdgroups_per_threadgroup": "uint",
    "dispatch_threads_per_threadgroup": "uint3",
    "grid_origin": "uint3",
    "grid_size": "uint3",
    "quadgroup_index_in_threadgroup": "uint",
    "quadgroups_per_threadgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "simdgroups_per_threadgroup": "uint",
    "thread_execution_width": "uint",
    "thread_index_in_quadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "thread_index_in_threadgroup": "uint",
    "thread_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "threadgroups_per_grid": "uint3",
    "threads_per_grid": "uint3",
    "threads_per_simdgroup": "uint",
    "threads_per_threadgroup": "uint3",
}
# Inputs of fewer elements than this are passed in constant memory.
CONSTANT_BELOW = 8
SHAPE_SUFFIXES = {
    "_shape": "const constant int*",
    "_strides": "const constant int64_t*",
    "_ndim": "const constant int&",
}
# Unrolled loops turn a thread's array into variables, and an index out of its bounds goes unnoticed.
_UNROLLING = re.compile(r"(?m)^[ \t]*#pragma clang loop.*$")
HEADER_VARIABLES = 1000  # numbers of threadgroup variables: those of the header begin here


@dataclass(frozen=True, slots=True)
class Signature:
    """What decides a kernel's generated text: one compiled kernel for each."""

    inputs: tuple[tuple[str, int, bool], ...]  # dtype, dimensions, constant memory
    outputs: tuple[str, ...]
    template: tuple[tuple[str, str, str], ...]  # kind, name, value


@dataclass(frozen=True, slots=True)
class Parameter:
    """A pointer or reference parameter of the generated kernel."""

    type: str
    name: str
    input: int | None = None  # index of the input it belongs to; None for outputs
    suffix: str = ""


def template_arguments(template: Sequence[tuple[str, Any]] | None) -> tuple[tuple[str, str, str], ...]:
    """MLX's template list as (kind, name, value) in Metal's words."""
    arguments = []
    for name, value in template or []:
        if isinstance(value, bool):
            arguments.append(("bool", name, "true" if value else "false"))
        elif isinstance(value, int):
            arguments.append(("int", name, str(value)))
        else:
            arguments.append(("typename", name, metal_type(dtype_name(value))))
    return tuple(arguments)


@dataclass
class MetalKernel:
    """A kernel made by `metal_kernel`; call it with the keywords of mx.fast.metal_kernel's result."""

    name: str
    input_names: Sequence[str]
    output_names: Sequence[str]
    source: str
    header: str
    ensure_row_contiguous: bool
    atomic_outputs: bool
    check: str
    seed: int
    flush_subnormals: bool
    _plans: dict[Signature, tuple[Plan, list[Parameter]]] = field(default_factory=dict)

    def __call__(
        self,
        *,
        inputs: Sequence[Any],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[Any],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: Sequence[tuple[str, Any]] | None = None,
        init_value: float | None = None,
        verbose: bool = False,
        stream: Any = None,
    ) -> list[Any]:
        """Runs the kernel: arrays of the outputs, of MLX where any input or dtype is MLX's.

        Outputs start as 0xFF bytes (NaN, -1) unless `init_value` is given.

        Raises:
            KernelError: the kernel does not compile or does something wrong.
            ValueError: inputs or outputs do not match their names.
        """
        if len(inputs) != len(self.input_names):
            raise ValueError(f"{self.name}: {len(inputs)} inputs for {len(self.input_names)} names")
        if not len(output_shapes) == len(output_dtypes) == len(self.output_names):
            raise ValueError(
                f"{self.name}: shapes and dtypes of outputs do not match {len(self.output_names)} names"
            )
        as_mx = any(map(is_mx, inputs)) or any(map(is_mx, output_dtypes))
        arrays = [host_array(value, self.ensure_row_contiguous) for value in inputs]
        dtypes = tuple(map(dtype_name, output_dtypes))
        signature = Signature(
            tuple((a.dtype, len(a.shape), math.prod(a.shape) < CONSTANT_BELOW) for a in arrays),
            dtypes,
            template_arguments(template),
        )
        if verbose:
            print(self.text(signature))
        if signature not in self._plans:
            parameters = self.parameters(signature)
            self._plans[signature] = self._build(signature, parameters), parameters
        plan, parameters = self._plans[signature]
        kept = _input_bytes(parameters, arrays)
        for shape, dtype in zip(output_shapes, dtypes, strict=True):
            kept.append(_initial(shape, dtype, init_value))
        sources = [
            (part.ctypes.data, part.nbytes) if isinstance(part, np.ndarray) else (None, part) for part in kept
        ]
        first_output = len(kept) - len(dtypes)
        with plan.launched(
            sources, grid, threadgroup, seed=self.seed, shared_limit=METAL_THREADGROUP_MEMORY
        ) as addresses:
            return [
                output_array(address, shape, dtype, as_mx)
                for address, shape, dtype in zip(addresses[first_output:], output_shapes, dtypes, strict=True)
            ]

    def parameters(self, signature: Signature) -> list[Parameter]:
        """The generated kernel's buffer parameters, as MLX makes them."""
        parameters = []
        for index, (name, (dtype, dimensions, constant)) in enumerate(
            zip(self.input_names, signature.inputs, strict=True)
        ):
            space, mark = "constant" if constant else "device", "*" if dimensions else "&"
            parameters.append(Parameter(f"const {space} {metal_type(dtype)}{mark}", name, index))
            if dimensions:
                for suffix, kind in SHAPE_SUFFIXES.items():
                    if name + suffix in self.source:
                        parameters.append(Parameter(kind, name + suffix, index, suffix))
        for name, dtype in zip(self.output_names, signature.outputs, strict=True):
            kind = metal_type(dtype)
            parameters.append(
                Parameter(f"device {f'atomic<{kind}>' if self.atomic_outputs else kind}*", name)
            )
        return parameters

    def attributes(self) -> list[tuple[str, str]]:
        """Type and name of the thread attributes the body names."""
        return [(kind, name) for name, kind in ATTRIBUTES.items() if name in self.source]

    def text(self, signature: Signature) -> str:
        """The C++ translation unit: header, kernel, and the entry that the executor calls."""
        header, source = (_UNROLLING.sub("", strip_comments(part)) for part in (self.header, self.source))
        head = float_literals(rewrite_shared(header, "threadgroup", HEADER_VARIABLES))
        body = float_literals(rewrite_shared(source, "threadgroup"))
        parameters, attributes = self.parameters(signature), self.attributes()
        function = "custom_kernel_" + re.sub(r"\W", "_", self.name)
        listed = [f"{p.type} {p.name}" for p in parameters] + [f"{kind} {name}" for kind, name in attributes]
        template = ", ".join(f"{kind} {name}" for kind, name, _ in signature.template)
        values = ", ".join(value for _, _, value in signature.template)
        arguments = [
            f"*({p.type[:-1]}*)arguments[{i}]" if p.type.endswith("&") else f"({p.type})arguments[{i}]"
            for i, p in enumerate(parameters)
        ]
        arguments += [f"ksim_attr::{name}()" for _, name in attributes]
        return (
            f'#line 1 "header.metal"\n{head}\n'
            + (f"template <{template}>\n" if template else "")
            + f"static void {function}(\n  "
            + ",\n  ".join(listed)
            + f')\n{{\n#line 1 "kernel.metal"\n{body}\n}}\n#line 1 "entry"\n'
            + 'extern "C" __attribute__((visibility("default"))) void ksim_entry(void** arguments) { '
            + f"{function}{f'<{values}>' if values else ''}({', '.join(arguments)}); }}\n"
        )

    def _build(self, signature: Signature, parameters: Sequence[Parameter]) -> Plan:
        kernel = build_kernel(self.text(signature), "metal", self.check)
        places = [
            Place(parameter.name, index, writable=parameter.input is None)
            for index, parameter in enumerate(parameters)
        ]
        flags = (FULL if self.check == "full" else 0) | (FLUSHES_SUBNORMALS if self.flush_subnormals else 0)
        return Plan(kernel, "ksim_entry", places, len(parameters), flags)


def _input_bytes(parameters: Sequence[Parameter], arrays: Sequence[HostArray]) -> list[Any]:
    parts: list[Any] = []
    for parameter in parameters:
        if parameter.input is None:
            continue
        array = arrays[parameter.input]
        if parameter.suffix == "_shape":
            parts.append(np.array(array.shape, np.int32))
        elif parameter.suffix == "_strides":
            parts.append(np.array(array.strides, np.int64))
        elif parameter.suffix == "_ndim":
            parts.append(np.array(len(array.shape), np.int32))
        else:
            parts.append(array.data)
    return parts


def _initial(shape: Sequence[int], dtype: str, init_value: float | None) -> Any:
    """The bytes an output starts with; without a value only their number."""
    count, storage = math.prod(shape), storage_dtype(dtype)
    if init_value is None:
        return count * storage.itemsize
    return np.full(count, bits_of(init_value, dtype), storage)


def metal_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,
    atomic_outputs: bool = False,
    check: str | None = None,
    seed: int | None = None,
    flush_subnormals: bool = False,
) -> MetalKernel:
    """mx.fast.metal_kernel, simulated.

    Args:
        name, input_names, output_names, source, header, ensure_row_contiguous, atomic_outputs: as in MLX.
        check: "fast" finds addresses out of bounds and divergent barriers; "full" also races between threads
            and threadgroups and reads of what nobody wrote. Default: KSIM_CHECK, else "fast".
        seed: 0 runs threads in order, other numbers in orders of their own. Default: KSIM_SEED, else 0.
        flush_subnormals: single-precision numbers below 2^-126 count as zero, as Metal leaves to a device.
    """
    check = check or os.environ.get("KSIM_CHECK", "fast")
    if check not in CHECKS:
        raise ValueError(f"check is one of {', '.join(CHECKS)}, not {check!r}")
    return MetalKernel(
        name=name,
        input_names=input_names,
        output_names=output_names,
        source=source,
        header=header,
        ensure_row_contiguous=ensure_row_contiguous,
        atomic_outputs=atomic_outputs,
        check=check,
        seed=int(os.environ.get("KSIM_SEED", "0")) if seed is None else seed,
        flush_subnormals=flush_subnormals,
    )
