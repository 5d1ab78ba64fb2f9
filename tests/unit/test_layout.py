"""The layout shows the design: who may import whom, what the tree may weigh, what files may say."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("apps", "shared", "ds4mlx", "ds4cuda")

# Packages of ours that each room may import.
ALLOWED = {
    "apps": {"apps", "shared"},
    "shared": {"shared"},
    "ds4mlx": {"ds4mlx", "shared"},
    "ds4cuda": {"ds4cuda", "shared"},
}
# The one file that names the backends.
BACKEND_CHOICE = "apps/backend.py"
FOREIGN_TO_SHARED = {"mlx", "mlx_lm", "cupy", "starlette", "hypercorn", "rich", "typer", "click"}
# Rooms of `shared` that must stay ignorant of the model.
IGNORANT_OF_MODEL = ("shared/text/", "shared/gguf/", "shared/quant/")
MAX_LINES = 400
MAX_TEST_DATA = 36 * 1024**2
MAX_TREE = 58 * 1024**2


def tracked_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout: what is part of the tree cannot be told from what was made in it")
    return [path for name in listing.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide who knows whom"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_packages_import_only_what_the_design_allows() -> None:
    wrong = []
    for name, tree in modules():
        room = name.split("/")[0]
        for imported in imported_names(tree):
            top = imported.split(".")[0]
            backend_chooser = name == BACKEND_CHOICE and top in ("ds4mlx", "ds4cuda")
            if top in PACKAGES and top not in ALLOWED[room] and not backend_chooser:
                wrong.append(f"{name} imports {imported}")
            if room == "shared" and top in FOREIGN_TO_SHARED:
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_text_and_files_know_nothing_of_the_model() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, tree in modules()
        if name.startswith(IGNORANT_OF_MODEL)
        for imported in imported_names(tree)
        if imported.startswith(("shared.model", "shared.session", "shared.kv"))
    ]
    assert not wrong


def test_source_files_stay_readable() -> None:
    crowded = [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path in tracked_files()
        if path.suffix in (".py", ".cu", ".h", ".metal", ".cpp")
        and (lines := path.read_text(encoding="utf-8").count("\n")) > MAX_LINES
    ]
    assert not crowded


def test_the_tree_stays_small() -> None:
    sizes = {path: path.stat().st_size for path in tracked_files()}
    tests = sum(size for path, size in sizes.items() if path.is_relative_to(ROOT / "tests"))
    assert tests <= MAX_TEST_DATA, f"tests/ holds {tests / 1e6:.1f} MB"
    assert sum(sizes.values()) <= MAX_TREE, f"the tree holds {sum(sizes.values()) / 1e6:.1f} MB"


def test_every_module_says_what_it_owns() -> None:
    silent = [
        name
        for name, tree in modules()
        if tree.body and not name.endswith("__init__.py") and ast.get_docstring(tree) is None
    ]
    assert not silent
