from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import NoReturn

import pytest

from shared.kv.files import replacement
from shared.kv.files.replacement import Replacement, temporary_path


def put(path: Path, content: bytes, failure: Exception | None = None) -> None:
    with Replacement(path) as new:
        new.file.write(content)
        if failure:
            raise failure
        new.commit()


def test_the_old_file_stays_until_the_commit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with Replacement(path) as new:
        new.file.write(b"new")
        assert path.read_bytes() == b"old"
        assert [entry.name for entry in tmp_path.iterdir() if entry != path] == [f"file.tmp.{os.getpid()}"]
        new.commit()
        assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with Replacement(path) as new:
        new.commit()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_others_may_read_what_is_not_private(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with Replacement(tmp_path / "file", private=False) as new:
            new.commit()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="stop"):
        put(path, b"new", RuntimeError("stop"))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_commit_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        put(path, b"new")
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """A file on a disk that is full once it is flushed."""

        closed = False

        def write(self, content: bytes) -> None:
            pass

        def flush(self) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            self.closed = True
            self.flush()

    full = Full()
    real_open = os.fdopen

    def opened(fd: int, *_: object, **__: object) -> Full:
        real_open(fd).close()
        return full

    monkeypatch.setattr(os, "fdopen", opened)
    with pytest.raises(OSError, match="No space left"):
        put(tmp_path / "file", b"new")
    assert full.closed
    assert list(tmp_path.iterdir()) == []


def test_a_leftover_of_our_own_process_id_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    target = tmp_path / "target"
    target.write_bytes(b"target")
    temporary_path(path).symlink_to(target)
    put(path, b"new")
    assert path.read_bytes() == b"new"
    assert not path.is_symlink()
    assert target.read_bytes() == b"target"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is flushed and renamed, in order; a directory is told by its kind."""
    noted: list[str] = []
    rename = Path.replace

    def fsync(fd: int) -> None:
        noted.append("flush directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "flush file")

    def replace(self: Path, target: Path) -> Path:
        noted.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    return noted


def test_the_content_is_on_disk_before_its_name(tmp_path: Path, steps: list[str]) -> None:
    put(tmp_path / "file", b"new")
    assert steps == ["flush file", "rename", "flush directory"]


def test_nothing_is_flushed_when_it_need_not_last(tmp_path: Path, steps: list[str]) -> None:
    with Replacement(tmp_path / "file", durable=False) as new:
        new.commit()
    assert steps == ["rename"]


def test_where_fsync_stops_at_the_drive_the_full_flush_is_asked_for(
    tmp_path: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(replacement.fcntl, "fcntl", lambda _, command: steps.append(f"fcntl {command}"))
    put(tmp_path / "file", b"new")
    assert steps == ["fcntl 51", "rename", "flush directory"]

    def refuse(fd: int, command: int) -> None:
        raise OSError(45, "Operation not supported")

    steps.clear()
    monkeypatch.setattr(replacement.fcntl, "fcntl", refuse)
    put(tmp_path / "file", b"new")
    assert steps == ["flush file", "rename", "flush directory"]


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_takes_nobodys_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    def refuse(*_: object) -> NoReturn:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "file"
    with Replacement(path) as new:
        new.file.write(b"first")
        new.commit(new=True)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileExistsError), Replacement(path) as new:
        new.commit(new=True)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
