"""What MLX itself would compile for a kernel call, and whether the simulator makes the same signature.

A build of MLX without Metal refuses to run a kernel, but traces one inside `mx.export_function`, and with
`verbose=True` prints the complete source. That text is also what the lints read.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx

from tests.ksim.arrays import dtype_name, host_array, is_mx
from tests.ksim.metal import CONSTANT_BELOW, MetalKernel, Signature, metal_kernel, template_arguments

_SOURCE = re.compile(r"Generated source code for `[^`]*`:\s*```\n(.*?)\n```", re.DOTALL)
_KERNEL = re.compile(r"\[\[kernel\]\]\s+void\s+(\w+)\s*\(")


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel and the arguments of one launch, by MLX's names."""

    kernel: dict[str, Any]  # keywords of mx.fast.metal_kernel
    launch: dict[str, Any]  # keywords of its result

    @property
    def threads(self) -> int:
        """Threads in a threadgroup."""
        x, y, z = self.launch["threadgroup"]
        return int(x * y * z)


@dataclass
class Recorder:
    """Makes kernels as `metal_kernel` does and keeps each launch in `calls`."""

    check: str = "fast"
    seed: int = 0
    calls: list[KernelCall] = field(default_factory=list)

    def __call__(self, **kernel: Any) -> Callable[..., list[Any]]:
        """In place of mx.fast.metal_kernel; takes its keywords."""
        made = metal_kernel(**kernel, check=self.check, seed=self.seed)

        def launch(**arguments: Any) -> list[Any]:
            self.calls.append(KernelCall(kernel, arguments))
            return made(**arguments)

        return launch


@contextmanager
def _standard_output(path: Path) -> Iterator[None]:
    """Sends what C++ code prints into a file."""
    sys.stdout.flush()
    before = os.dup(1)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)


def mlx_source(call: KernelCall) -> str:
    """The Metal text that MLX generates for `call`, header included, without MLX's own preamble.

    Raises:
        RuntimeError: MLX printed nothing that looks like it.
    """
    kernel: Callable[..., Any] = mx.fast.metal_kernel(**call.kernel)  # type: ignore[assignment]
    inputs = [value if is_mx(value) else mx.array(value) for value in call.launch["inputs"]]
    keywords = {name: value for name, value in call.launch.items() if name not in ("inputs", "stream")}

    def traced(*arrays: mx.array) -> Any:
        return kernel(inputs=list(arrays), **{**keywords, "verbose": True})

    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "printed"
        with _standard_output(printed):
            mx.export_function(str(Path(folder) / "traced.mlxfn"), traced, *inputs)
        found = _SOURCE.search(printed.read_text(encoding="utf-8"))
    if found is None:
        raise RuntimeError(f"MLX printed no source for kernel {call.kernel['name']!r}")
    return found.group(1)


def closing_bracket(text: str, start: int) -> int:
    """The index of the bracket that closes the one before `start`."""
    depth = 1
    for index in range(start, len(text)):
        depth += text[index] in "([{"
        depth -= text[index] in ")]}"
        if depth == 0:
            return index
    raise ValueError("a bracket is not closed")


def kernel_parameters(text: str) -> list[str]:
    """The parameters of the kernel function in MLX's text, without attributes, blanks made one.

    Raises:
        ValueError: there is no kernel function.
    """
    found = _KERNEL.search(text)
    if found is None:
        raise ValueError("no [[kernel]] function in the text")
    listed = text[found.end() : closing_bracket(text, found.end())]
    return [" ".join(part.split()) for part in re.sub(r"\[\[.*?\]\]", "", listed).split(",")]


def _ours(call: KernelCall) -> tuple[MetalKernel, Signature]:
    made = metal_kernel(**call.kernel)
    arrays = [host_array(value, True) for value in call.launch["inputs"]]
    inputs = tuple((a.dtype, len(a.shape), a.data.size < CONSTANT_BELOW) for a in arrays)
    outputs: Sequence[str] = [dtype_name(dtype) for dtype in call.launch["output_dtypes"]]
    return made, Signature(inputs, tuple(outputs), template_arguments(call.launch.get("template")))


def simulated_parameters(call: KernelCall) -> list[str]:
    """The parameters of the function that the simulator compiles for `call`."""
    made, signature = _ours(call)
    buffers = [f"{parameter.type} {parameter.name}" for parameter in made.parameters(signature)]
    return buffers + [f"{kind} {name}" for kind, name in made.attributes()]


def same_signature(call: KernelCall) -> bool:
    """Whether MLX and the simulator give the kernel the same parameters in the same order."""
    return kernel_parameters(mlx_source(call)) == simulated_parameters(call)
