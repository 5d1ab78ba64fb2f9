"""Damaged files are put away, and what is put away stays bounded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from shared.kv.store.quarantine import FOLDER, MOST_FILES, put_away


def _put(folder: Path, number: int, size: int = 10) -> Path:
    path = folder / f"{number:040x}.kv"
    path.write_bytes(bytes(size))
    path.with_name(path.name + ".sum").write_bytes(b"sum")
    return path


def _bad(folder: Path) -> list[int]:
    return sorted(int(path.stem, 16) for path in (folder / FOLDER).glob("*.kv"))


def test_the_file_moves_with_its_checksum(tmp_path: Path) -> None:
    path = _put(tmp_path, 7)
    assert put_away(path, None)
    assert sorted(found.name for found in tmp_path.iterdir()) == [FOLDER]
    names = sorted(found.name for found in (tmp_path / FOLDER).iterdir())
    assert names == [path.name, path.name + ".sum"]
    assert (tmp_path / FOLDER).stat().st_mode & 0o777 == 0o700


def test_a_file_without_a_checksum_or_without_itself(tmp_path: Path) -> None:
    path = _put(tmp_path, 7)
    path.with_name(path.name + ".sum").unlink()
    assert put_away(path, None)
    assert not put_away(path, None)


def test_the_latest_stay(tmp_path: Path) -> None:
    for number in range(MOST_FILES + 3):
        path = _put(tmp_path, number)
        put_away(path, None)
        os.utime(tmp_path / FOLDER / path.name, ns=(number, number))
    assert _bad(tmp_path) == list(range(3, MOST_FILES + 3))
    assert len(list((tmp_path / FOLDER).iterdir())) == 2 * MOST_FILES


def test_no_more_than_an_eighth_of_the_budget_but_always_the_last(tmp_path: Path) -> None:
    for number in range(4):
        path = _put(tmp_path, number, 40)
        put_away(path, 8 * 100)
        os.utime(tmp_path / FOLDER / path.name, ns=(number, number))
    assert _bad(tmp_path) == [2, 3]
    put_away(_put(tmp_path, 9, 1000), 8 * 100)
    assert _bad(tmp_path) == [9]


def test_what_counts_is_when_a_file_was_put_away(tmp_path: Path) -> None:
    for number in range(MOST_FILES + 1):
        path = _put(tmp_path, number)
        os.utime(path, ns=(1000 - number, 1000 - number))
        put_away(path, None)
    assert _bad(tmp_path) == list(range(1, MOST_FILES + 1))


def test_whoever_empties_it_meanwhile_is_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanished(path: object) -> NoReturn:
        raise FileNotFoundError(2, "No such file or directory")

    path = _put(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", vanished)
        assert put_away(path, None)
    assert _bad(tmp_path) == [1]
