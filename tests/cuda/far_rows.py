"""Weights as if they stood far behind the beginning of an array that is larger than any memory.

A kernel's text is changed at two places: numbers of rows or experts become larger by FAR, and the weights'
addresses smaller by as much. All results stay as they are, if offsets have 64 bits. Must not know: contracts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ds4cuda.kernels.kernel import Modules

# With 22 numbers or more in a row, and with 22 rows or more for each expert, beyond 2^31.
FAR = 100_000_007


@dataclass(frozen=True, slots=True)
class Shift:
    """In the text of some kernels `number` becomes what `further` says. `pointers` name the parameters that
    begin so many elements earlier, as expressions of the text's constants."""

    number: str
    further: str
    pointers: dict[str, str]

    def applied(self, text: str, name: str) -> str:
        """Raises AssertionError where the text has no such number or parameter."""
        assert self.number in text, f"{name} has no {self.number}"
        head = re.search(rf"\b{name}\(([^)]*)\)\s*\{{", text)
        assert head is not None, f"there is no kernel {name}"
        lines = [f"{pointer} -= (long long)FAR * {each};\n" for pointer, each in self.pointers.items()]
        lines = [line for line in lines if re.search(rf"\b{line.split()[0]}\b", head[1])]
        assert lines, f"{name} has none of {', '.join(self.pointers)}"
        body = "".join(lines) + text[head.end() :].replace(self.number, self.further)
        return f"constexpr int FAR = {FAR};\n{text[: head.end()]}\n{body}"


class FarModules:
    """Stands for a device: kernels named in `shifts` get the changed text, others their own."""

    def __init__(self, modules: Modules, shifts: dict[str, Shift]) -> None:
        self._modules = modules
        self._shifts = shifts
        self.changed: set[str] = set()

    def function(self, text: str, name: str, options: tuple[str, ...]) -> Any:
        if name in self._shifts:
            text = self._shifts[name].applied(text, name)
            self.changed.add(name)
        return self._modules.function(text, name, options)
