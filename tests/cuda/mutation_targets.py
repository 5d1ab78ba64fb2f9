"""Every text that CUDA kernels are put together from, and the tests that its broken copies must fail.

Cases are the tests that take a device, with each set of their parameters.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from inspect import signature
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType
from typing import Any

from ds4cuda.device import Device
from ds4cuda.kernels import run_experts, run_experts8
from ds4cuda.kernels.kernel import HEADERS
from tests.cuda.cupy_standin import CupyStandin
from tests.ksim.mutants import mutants
from tests.ksim.rewrite import strip_comments
from tests.support.mutation.target import Case, Target

RESULTS = Path(__file__).parent / "mutants"
KERNELS = HEADERS.parent
# Headers that stand for the one that kernels of several block types include.
_BLOCK_HEADERS = {*run_experts.BLOCK_HEADERS.values(), *run_experts8.BLOCK_HEADERS.values()}
_INCLUDE = re.compile(r'^#include "([\w.]+)"\n', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CudaTarget(Target):
    """A file under ds4cuda/kernels and the modules of tests/cuda whose tests are run on it."""

    results = RESULTS
    program = "tests.cuda.mutation"
    rounding = ("round_fp8", "round_fp4", "round_to", "to_half")

    @property
    def whole(self) -> str:
        """The file after its last include, as it stands in every text that is compiled."""
        text = self.path.read_text(encoding="utf-8")
        return text[max((found.end() for found in _INCLUDE.finditer(text)), default=0) :]

    @property
    def text(self) -> str:
        lines = (line.rstrip() for line in strip_comments(self.whole).splitlines())
        return "\n".join(line for line in lines if line) + "\n"

    def cases(self) -> dict[str, Case]:
        return {
            f"{module.removeprefix('test_')}: {label}": case
            for module in self.modules
            for label, case in _cases(module).items()
        }

    def subject(self, check: str, seed: int, broken: str, uses: list[str] | None = None) -> Device:
        # The unbroken text with its comments: as other tests compile it.
        by = self.whole if broken == self.text else broken
        return _Breaking(CupyStandin(check=check, seed=seed), self.whole, by, uses)


class _Breaking(Device):
    """A device that compiles every kernel with `original` replaced by `broken`; their names go to `uses`."""

    def __init__(self, cupy: CupyStandin, original: str, broken: str, uses: list[str] | None) -> None:
        super().__init__(cupy)
        self._original, self._broken, self._uses = original, broken, uses

    def function(self, text: str, name: str, options: tuple[str, ...]) -> Any:
        if self._original in text and self._uses is not None:
            self._uses.append(name)
        return super().function(text.replace(self._original, self._broken), name, options)


@cache
def _cases(module: str) -> dict[str, Case]:
    """Tests of a module that take a device, and else parameters or a folder; by test and parameters."""
    functions = vars(import_module(f"tests.cuda.{module}"))
    return {
        label: case
        for name, function in functions.items()
        if name.startswith("test_") and isinstance(function, FunctionType)
        for label, case in _instances(name.removeprefix("test_"), function)
    }


def _instances(name: str, function: FunctionType) -> Iterator[tuple[str, Case]]:
    """A test with each of its sets of parameters, none where it takes no device or other things too."""
    sets: list[list[tuple[tuple[str, Any], ...]]] = []
    for mark in getattr(function, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names, rows = mark.args
        names = [word.strip() for word in names.split(",")] if isinstance(names, str) else list(names)
        plain = [getattr(row, "values", row) for row in rows]
        sets.append([tuple(zip(names, row if len(names) > 1 else _one(row), strict=True)) for row in plain])
    for chosen in product(*sets):
        parameters = dict(pair for each in chosen for pair in each)
        if signature(function).parameters.keys() - {"tmp_path"} == {"device", *parameters}:
            words = ", ".join(f"{key}={_word(value)}" for key, value in parameters.items())
            yield f"{name}({words})", partial(_call, function, parameters)


def _call(function: FunctionType, parameters: dict[str, Any], device: Device) -> None:
    with TemporaryDirectory() as folder:
        if "tmp_path" in signature(function).parameters:
            parameters = parameters | {"tmp_path": Path(folder)}
        function(device=device, **parameters)


def _one(row: Any) -> tuple[Any, ...]:
    """The values of a row of one parameter, which pytest.param puts into a tuple."""
    return row if isinstance(row, tuple) and len(row) == 1 else (row,)


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(_word, value))
    return str(getattr(value, "name", value))


def _folders(path: Path) -> set[str]:
    """The folders of the kernels that a file is part of."""
    if path.suffix == ".cu":
        return {path.parent.name}
    names = {path.name, run_experts.BLOCK_TYPE} if path.name in _BLOCK_HEADERS else {path.name}
    sources = KERNELS.rglob("*.cu")
    return {one.parent.name for one in sources if names & set(_INCLUDE.findall(one.read_text("utf-8")))}


@cache
def _tested(module: Path) -> set[str]:
    """What a test module imports from ds4cuda.kernels, and all that it has in quotes."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "ds4cuda.kernels":
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ds4cuda.kernels."):
            found.add(str(node.module).split(".")[2])
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(_INCLUDE.findall(node.value))
    return found


@cache
def targets() -> dict[str, CudaTarget]:
    """Every text with at least one mutant, by name."""
    found = {}
    tests = sorted(Path(__file__).parent.glob("test_*.py"))
    for path in sorted([*KERNELS.rglob("*.cu"), *KERNELS.rglob("*.cuh")]):
        names = {*_folders(path), path.name}
        target = CudaTarget(path, tuple(test.stem for test in tests if names & _tested(test)))
        if mutants(target.text, target.rounding):
            found[target.name] = target
    return found
