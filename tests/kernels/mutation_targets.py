"""Every text that kernels are put together from, and the test cases that its broken copies must fail.

Cases are those of the operations that use the text, and of tests of its own where it has some.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from ds4mlx.kernels.block_types import PART_HEADERS, PIECE_HEADERS
from ds4mlx.kernels.kernel import HEADERS, Kernel, Maker, plain_text
from ds4mlx.kernels.registry import OPERATIONS, operation
from tests.ksim.mutants import Mutant, mutants

Case = Callable[[Maker], None]

RESULTS = Path(__file__).parent / "mutants"
_ROOT = HEADERS.parent
# Functions of the kernels that round their first argument.
_ROUNDING = ("round_fp8", "round_fp4", "round_to")
# The folders that a registered operation takes its texts from, with the modules of their tests.
_FOLDER_MODULES = {
    "experts_prefill": ("test_experts_prefill_sort", "test_experts_prefill"),
    "half_matmul": ("test_half_matmul", "test_project"),
}
_BLOCK_HEADERS = {name for names in (*PART_HEADERS.values(), *PIECE_HEADERS.values()) for name in names}


@dataclass(frozen=True, slots=True)
class Target:
    """A Metal file under ds4mlx/kernels and the modules of tests/kernels whose CASES are run on it."""

    path: Path
    modules: tuple[str, ...]

    @property
    def name(self) -> str:
        """As in "attend.prefill" or, of a shared text, "headers.sums"."""
        folder = self.path.parent.name
        return folder if self.path.stem == "kernel" else f"{folder}.{self.path.stem}"

    @property
    def text(self) -> str:
        """What is broken: the text as it is handed to the compiler."""
        return plain_text(self.path)

    @property
    def result(self) -> Path:
        return RESULTS / f"{self.name}.json"

    def digest(self) -> str:
        """Of what means something in the text: rewording a comment or unrolling a loop changes nothing."""
        lines = [line for line in self.text.splitlines() if line and not line.startswith("#pragma")]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def mutants(self) -> list[Mutant]:
        return mutants(self.text, _ROUNDING)

    def cases(self) -> dict[str, Case]:
        """All cases of the modules, by "module: case" without "test_"."""
        return {
            f"{module.removeprefix('test_')}: {label}": case
            for module in self.modules
            for label, case in cast("dict[str, Case]", import_module(f"tests.kernels.{module}").CASES).items()
        }


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
def targets() -> dict[str, Target]:
    """Every text with at least one mutant, by name, in the order of the forward pass."""
    folders: dict[Path, list[str]] = {}
    for name in OPERATIONS:
        for kernel in operation(name).KERNELS:
            for path in _files(kernel):
                folders.setdefault(path, []).append(kernel.body.parent.name)
    found = [Target(path, _modules(path, users)) for path, users in folders.items()]
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
