"""One CUDA kernel: its text, the dimensions written into it, and how it is launched.

Headers are put into the text when it is read: what a compiled kernel is kept under is made from its text, so
a header must be part of it. Must not know: what any kernel computes, models.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

HEADERS = Path(__file__).parent / "headers"
OPTIONS = ("--std=c++17",)
# Shared memory that a launch gets without asking for more.
PLAIN_SHARED_BYTES = 48 << 10
_INCLUDE = re.compile(r'^#include "([\w.]+)"\n', re.MULTILINE)

Constant = bool | int | float | str


class Modules(Protocol):
    """Compiles a text, at its first use, and gives one of its kernels."""

    def function(self, text: str, name: str, options: tuple[str, ...]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Kernel:
    """`name` is the function's, `source` the file that defines it; of the headers that it includes, some
    stand for others: `replaced` holds pairs of an included name and a file's."""

    name: str
    source: Path
    replaced: tuple[tuple[str, str], ...] = ()

    def replacing(self, header: str, by: str) -> Kernel:
        """The same kernel with another header in the place of `header`."""
        return replace(self, replaced=(*self.replaced, (header, by)))

    def text(self, **constants: Constant) -> str:
        """The whole text: `constants`, then the file with its headers in place of their includes.

        Numbers and flags become constants of those names, a string the name of a type.
        """
        declared = "".join(_declaration(*item) for item in constants.items())
        return declared + _with_headers(self.source, self.replaced)

    def specialise(self, modules: Modules, **constants: Constant) -> Launch:
        return Launch(modules.function(self.text(**constants), self.name, OPTIONS), self.name)


@dataclass(slots=True)
class Launch:
    """A compiled kernel. Arguments are device arrays and NumPy scalars: a Python number would be passed with
    a width of its own choice."""

    function: Any
    name: str
    _shared: int = field(default=PLAIN_SHARED_BYTES, init=False)

    def __call__(self, grid: Sequence[int], threads: int, *arguments: Any, shared_bytes: int = 0) -> None:
        for place, argument in enumerate(arguments):
            if not hasattr(argument, "dtype"):
                raise TypeError(f"{self.name}: argument {place} is a {type(argument).__name__}")
        if shared_bytes > self._shared:
            self.function.max_dynamic_shared_size_bytes = self._shared = shared_bytes
        self.function(tuple(grid), (threads,), arguments, shared_mem=shared_bytes)


def int32(value: int) -> np.int32:
    """A scalar for a kernel's `int`. Raises OverflowError where it is none."""
    return np.int32(value)


def blocks_for(count: int, each: int) -> int:
    """Blocks of `each` that hold `count`."""
    return -(-count // each)


@cache
def _with_headers(path: Path, replaced: tuple[tuple[str, str], ...]) -> str:
    text = path.read_text(encoding="utf-8")
    names = dict(replaced)
    return _INCLUDE.sub(lambda found: _with_headers(HEADERS / names.get(found[1], found[1]), replaced), text)


def _declaration(name: str, value: Constant) -> str:
    if isinstance(value, str):
        return f"typedef {value} {name};\n"
    if isinstance(value, bool):
        return f"constexpr bool {name} = {str(value).lower()};\n"
    if isinstance(value, int):
        return f"constexpr int {name} = {value};\n"
    return f"constexpr float {name} = {value!r}f;\n"
