"""Every operation that has kernels, in the order of the forward pass. Must not know: models, devices."""

from __future__ import annotations

import hashlib
from importlib import import_module
from typing import Protocol, cast

from ds4mlx.kernels.kernel import Example, Kernel

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
    """Of the texts of all kernels."""
    texts = [kernel.digest() for name in OPERATIONS for kernel in operation(name).KERNELS]
    return hashlib.sha256(" ".join(texts).encode()).hexdigest()
