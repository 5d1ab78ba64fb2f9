"""Temporaries of dead writers go; everything else stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.kv.store.leftovers import DAY, HOUR, remove_leftovers

NOW = 1_700_000_000
NAME = "0123456789abcdef0123456789abcdef01234567.kv"


@pytest.fixture(scope="module")
def dead() -> int:
    """The id of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def _put(folder: Path, name: str, age: int = 0) -> Path:
    path = folder / name
    path.write_bytes(b"half a file")
    os.utime(path, (NOW - age, NOW - age))
    return path


def test_of_dead_processes(tmp_path: Path, dead: int) -> None:
    for name in (NAME, NAME + ".sum", NAME.upper().replace("KV", "kv"), ".model", "sysprompt.kv"):
        _put(tmp_path, f"{name}.tmp.{dead}")
    _put(tmp_path, f"{NAME}.tmp.4294967295")
    assert remove_leftovers(tmp_path, NOW) == 6
    assert not list(tmp_path.iterdir())


def test_of_living_processes_until_no_write_takes_so_long(tmp_path: Path) -> None:
    living = _put(tmp_path, f"{NAME}.tmp.{os.getppid()}", DAY - 1)
    assert remove_leftovers(tmp_path, NOW) == 0
    assert living.exists()
    assert remove_leftovers(tmp_path, NOW + 2) == 1


def test_of_a_dead_namesake_of_this_process(tmp_path: Path) -> None:
    _put(tmp_path, f"{NAME}.tmp.{os.getpid()}")
    assert remove_leftovers(tmp_path, NOW) == 1


def test_random_endings_get_an_hour(tmp_path: Path) -> None:
    young, old = (
        _put(tmp_path, f"{NAME}.tmp.aB3xYz", HOUR - 1),
        _put(tmp_path, f"{NAME}.tmp.aB3xYw", HOUR + 1),
    )
    assert remove_leftovers(tmp_path, NOW) == 1
    assert young.exists()
    assert not old.exists()


def test_checksums_without_a_file(tmp_path: Path) -> None:
    _put(tmp_path, NAME)
    kept = _put(tmp_path, NAME + ".sum")
    _put(tmp_path, "f" * 40 + ".kv.sum")
    assert remove_leftovers(tmp_path, NOW) == 1
    assert kept.exists()


def test_everything_else_stays(tmp_path: Path, dead: int) -> None:
    names = [
        NAME,
        "notes.txt",
        f"notes.txt.tmp.{dead}",
        f"{NAME}.tmp.",
        f"{NAME}.tmp.abc",
        f"{NAME}.tmp.{dead}.bak",
        f"abc.kv.tmp.{dead}",
        "notes.sum",
    ]
    for name in names:
        _put(tmp_path, name, 2 * DAY)
    assert remove_leftovers(tmp_path, NOW) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
