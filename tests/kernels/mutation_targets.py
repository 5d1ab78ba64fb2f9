"""Every text that kernels are put together from, and the test cases that its broken copies must fail.

Cases are those of the operations that use the text, and of tests of its own where it has some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from ds4mlx.kernels.block_types import PART_HEADERS, PIECE_HEADERS
from ds4mlx.kernels.kernel import HEADERS, Kernel, Maker, plain_text
from ds4mlx.kernels.registry import OPERATIONS, operation
from tests.ksim import metal_kernel
from tests.support.mutation.target import Case, Target

RESULTS = Path(__file__).parent / "mutants"
_ROOT = HEADERS.parent
# The folders that a registered operation takes its texts from, with the modules of their tests.
_FOLDER_MODULES = {
    "experts_prefill": ("test_experts_prefill_sort", "test_experts_prefill"),
    "half_matmul": ("test_half_matmul", "test_project"),
}
_BLOCK_HEADERS = {name for names in (*PART_HEADERS.values(), *PIECE_HEADERS.values()) for name in names}


@dataclass(frozen=True, slots=True)
class MetalTarget(Target):
    """A Metal file under ds4mlx/kernels and the modules of tests/kernels whose CASES are run on it."""

    results = RESULTS
    program = "tests.kernels.mutation"
    rounding = ("round_fp8", "round_fp4", "round_to")

    @property
    def text(self) -> str:
        return plain_text(self.path)

    def cases(self) -> dict[str, Case]:
        return {
            f"{module.removeprefix('test_')}: {label}": case
            for module in self.modules
            for label, case in cast("dict[str, Case]", import_module(f"tests.kernels.{module}").CASES).items()
        }

    def subject(self, check: str, seed: int, broken: str, uses: list[str] | None = None) -> Maker:
        return breaking(partial(metal_kernel, check=check, seed=seed), self.text, broken, uses)


def _files(kernel: Kernel) -> list[Path]:
    """The files that a kernel is put together from."""
    shared = [HEADERS / name for name in kernel.functions]
    own = [kernel.body.parent / name for name in kernel.functions]
    return [kernel.body, *(a if a.exists() else b for a, b in zip(shared, own, strict=True))]


def _modules(path: Path, folders: list[str]) -> tuple[str, ...]:
    found: list[str] = []
    if path.parent == HEADERS and path.name in _BLOCK_HEADERS:
        found.append("test_block_headers")
    if path.name == "sums.metal":
        found.append("test_sums")
    for folder in folders:
        found += _FOLDER_MODULES.get(folder, (f"test_{folder}",))
    return tuple(dict.fromkeys(found))


@cache
def targets() -> dict[str, MetalTarget]:
    """Every text with at least one mutant, by name, in the order of the forward pass."""
    folders: dict[Path, list[str]] = {}
    for name in OPERATIONS:
        for kernel in operation(name).KERNELS:
            for path in _files(kernel):
                folders.setdefault(path, []).append(kernel.body.parent.name)
    found = [MetalTarget(path, _modules(path, users)) for path, users in folders.items()]
    return {target.name: target for target in found if target.mutants()}


def texts_without_target() -> set[Path]:
    """Metal files that no kernel uses or that have nothing to break."""
    return set(_ROOT.rglob("*.metal")) - {target.path for target in targets().values()}


def breaking(maker: Maker, original: str, broken: str, uses: list[str] | None = None) -> Maker:
    """`maker` with the text `original` replaced in every kernel that has it; their names go to `uses`."""

    def made(*, name: str, source: str, header: str, **keywords: Any) -> Callable[..., Any]:
        if source == original or original in header:
            if uses is not None:
                uses.append(name)
            source = broken if source == original else source
            header = header.replace(original, broken)
        return maker(name=name, source=source, header=header, **keywords)

    return made
