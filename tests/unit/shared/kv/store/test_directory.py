"""The directory of a store: private, one writer at a time, for one model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shared.errors import StoreUnavailable
from shared.kv.store.directory import LOCK, MARKER, StoreDirectory
from tests.support.stores import MODEL

OTHER = replace(MODEL, fingerprint="cd" * 32, name="another")
# Takes the lock of a directory, says so, and holds it until its input ends.
HOLDER = (
    "import fcntl, sys\n"
    "file = open(sys.argv[1], 'w')\n"
    "fcntl.flock(file, fcntl.LOCK_EX)\n"
    "print('held', flush=True)\n"
    "sys.stdin.read()\n"
)


def test_made_for_this_user_alone(tmp_path: Path) -> None:
    directory = StoreDirectory(tmp_path / "a" / "b", MODEL)
    assert directory.take()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    for name in (LOCK, MARKER):
        assert (tmp_path / "a" / "b" / name).stat().st_mode & 0o777 == 0o600
    marker = json.loads((tmp_path / "a" / "b" / MARKER).read_text())
    assert marker == {"fingerprint": MODEL.fingerprint, "name": MODEL.name}
    directory.close()


def test_an_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    StoreDirectory(tmp_path, MODEL).close()
    assert tmp_path.stat().st_mode & 0o777 == 0o750


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    first, second = StoreDirectory(tmp_path, MODEL), StoreDirectory(tmp_path, MODEL)
    assert first.take()
    assert not first.take()
    assert first.held
    assert not second.take()
    assert not second.held
    first.close()
    assert second.take()
    assert second.held
    second.close()


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    directory = StoreDirectory(tmp_path, MODEL)
    command = [sys.executable, "-c", HOLDER, str(tmp_path / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert not directory.take()
        holder.kill()
        holder.wait()
        assert directory.take()
    directory.close()


def test_another_model_is_turned_away_with_both_names(tmp_path: Path) -> None:
    first = StoreDirectory(tmp_path, MODEL)
    first.take()
    first.close()
    with pytest.raises(
        StoreUnavailable, match=r"'synthetic', this one is 'another'.*choose another directory"
    ):
        StoreDirectory(tmp_path, OTHER)
    again = StoreDirectory(tmp_path, MODEL)
    assert again.take()
    again.close()


def test_a_mark_that_comes_meanwhile_counts(tmp_path: Path) -> None:
    late = StoreDirectory(tmp_path, OTHER)
    first = StoreDirectory(tmp_path, MODEL)
    first.take()
    first.close()
    with pytest.raises(StoreUnavailable):
        late.take()
    assert not late.held
    late.close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"name": "x"}', b"\xff", b"[" * 60000])
def test_an_unreadable_mark_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MARKER).write_bytes(content)
    with pytest.raises(StoreUnavailable, match="choose another directory, or remove that file"):
        StoreDirectory(tmp_path, MODEL)
    assert (tmp_path / MARKER).read_bytes() == content


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreUnavailable, match="choose another directory"):
            StoreDirectory(path, MODEL)


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailable):
        StoreDirectory(tmp_path, MODEL)
    assert not (tmp_path / "elsewhere").exists()


def test_a_directory_that_was_removed_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "store"
    directory = StoreDirectory(path, MODEL)
    directory.take()
    shutil.rmtree(path)
    assert directory.take()
    assert (path / MARKER).exists()
    second = StoreDirectory(path, MODEL)
    assert not second.take()
    for one in (directory, second):
        one.close()
