"""One Metal kernel: its text, the dimensions written into it, and how it is launched.

A kernel's `.metal` file is a function body; MLX writes the signature from the names of inputs and outputs and
from the thread attributes that the body mentions. Must not know: what any kernel computes, models.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx

# Makes a launching function from a kernel's text, as `mx.fast.metal_kernel` does; tests pass a simulator.
Maker = Callable[..., Callable[..., list[mx.array]]]
# What makes the kernels of an operation, by its name; None: its fallback has to do.
Makers = Callable[[str], Maker | None]
Grid = tuple[int, int, int]
# launch(inputs, output shapes, output dtypes, threads in all, threads of a group) -> outputs
Launch = Callable[[list[mx.array], Sequence[tuple[int, ...]], Sequence[mx.Dtype], Grid, Grid], list[mx.array]]
Constant = bool | int | float | mx.Dtype

HEADERS = Path(__file__).parent / "headers"
# Arrays of fewer elements are passed in Metal's `constant` address space, others in `device`.
CONSTANT_SPACE_BELOW = 8
_METAL_TYPES = {
    mx.float32: "float",
    mx.float16: "half",
    mx.int32: "int",
    mx.uint32: "uint",
    mx.uint8: "uchar",
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """`body` is the file with the function body; `functions` names files of `headers/`, then of the kernel's
    own folder, that are put before it, in order.

    `small` names the inputs that can have fewer than 8 elements in one launch and more in another: Metal
    compiles another signature for these, under another name.
    """

    name: str
    body: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    functions: tuple[str, ...] = ()
    small: tuple[str, ...] = ()

    def specialise(self, maker: Maker, **constants: Constant) -> Launch:
        """The launching function with `constants` written into the text: numbers and flags as compile-time
        constants, dtypes as type names."""
        header = _prelude(constants) + "".join(text for text in self._function_texts())
        source = plain_text(self.body)
        digest = hashlib.sha256((header + source).encode()).hexdigest()[:10]
        places = [self.inputs.index(name) for name in self.small]

        @cache
        def made(*in_constant_space: bool) -> Callable[..., list[mx.array]]:
            spaces = "".join("c" if small else "d" for small in in_constant_space)
            return maker(
                name=f"ds4_{self.name}_{digest}{spaces}",
                input_names=list(self.inputs),
                output_names=list(self.outputs),
                source=source,
                header=header,
            )

        always = None if places else made()

        def launch(
            inputs: list[mx.array],
            shapes: Sequence[tuple[int, ...]],
            dtypes: Sequence[mx.Dtype],
            threads: Grid,
            group: Grid,
        ) -> list[mx.array]:
            call = always or made(*[inputs[place].size < CONSTANT_SPACE_BELOW for place in places])
            return call(
                inputs=inputs, output_shapes=shapes, output_dtypes=dtypes, grid=threads, threadgroup=group
            )

        return launch

    def _function_texts(self) -> Iterator[str]:
        for name in self.functions:
            shared = HEADERS / name
            yield plain_text(shared if shared.exists() else self.body.parent / name)


@dataclass(frozen=True, slots=True)
class Example:
    """A small input on which a kernel must agree with its fallback.

    `build` takes a maker and gives the launching function; `tolerance` is the allowed difference as a part of
    the largest expected value, 0 for bit-equal.
    """

    label: str
    build: Callable[[Maker], Callable[..., Any]]
    fallback: Callable[..., Any]
    arguments: tuple[Any, ...]
    tolerance: float


@cache
def plain_text(path: Path) -> str:
    """A Metal file without comments and indentation, line for line: shorter, and a word in a comment cannot
    add a parameter to the signature."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    return "".join(f"{line.split('//')[0].strip()}\n" for line in text.splitlines())


def _prelude(constants: dict[str, Constant]) -> str:
    return "".join(_declaration(name, value) for name, value in constants.items())


def _declaration(name: str, value: Constant) -> str:
    if isinstance(value, mx.Dtype):
        return f"using {name} = {_METAL_TYPES[value]};\n"
    if isinstance(value, bool):
        return f"static constant constexpr const bool {name} = {str(value).lower()};\n"
    if isinstance(value, int):
        return f"static constant constexpr const int {name} = {value};\n"
    return f"static constant constexpr const float {name} = {value!r}f;\n"
