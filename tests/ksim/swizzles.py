"""Writes the header of vector swizzles: v.xy, v.zzx and all the others, as property declarations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator


def swizzle_lines(components: int) -> Iterator[str]:
    """One KSIM_S<n>(name, indices...) for each swizzle of a vector of that many components."""
    for names in ("xyzw", "rgba"):
        lengths = (2, 3, 4) if names == "xyzw" else (components,)
        for length in lengths:
            for indices in itertools.product(range(components), repeat=length):
                name = "".join(names[index] for index in indices)
                yield f"KSIM_S{length}({name}, {', '.join(map(str, indices))})"


def swizzle_header() -> str:
    """The header, included once per vector length with KSIM_N set to it."""
    lines = []
    for components in (2, 3, 4):
        lines += [f"#if KSIM_N == {components}", *swizzle_lines(components), "#endif"]
    return "\n".join(lines) + "\n"
