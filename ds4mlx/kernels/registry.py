"""Every operation that has kernels, in the order of the forward pass. Must not know: models, devices."""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from ds4mlx.kernels.kernel import Example, Kernel

PACKAGE = Path(__file__).parent
OPERATIONS = (
    "hyper_mix",
    "hyper_join",
    "hyper_collapse",
    "project",
    "attention_rows",
    "compress",
    "index_queries",
    "index_scores",
    "top_k",
    "attend",
    "project_swiglu",
    "route",
    "run_experts",
    "head_collapse",
    "stack_rows",
)


class Operation(Protocol):
    """A module of this package; it also has `build` and `fallback`, each with a signature of its own."""

    KERNELS: tuple[Kernel, ...]

    def examples(self) -> list[Example]:
        """Small inputs for `proof`."""
        ...


def operation(name: str) -> Operation:
    return cast("Operation", import_module(f"ds4mlx.kernels.{name}"))


def digest() -> str:
    """Of all files of this package: what kernels are made from, how they are launched, what they are compared
    with and how exactly."""
    found = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".metal", ".py"):
            found.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + path.read_bytes())
    return found.hexdigest()
