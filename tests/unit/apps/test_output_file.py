"""An output that cannot be written is refused before the work."""

import os

import pytest

from apps.output_file import check_replaceable, check_writable
from shared.errors import UsageError


def test_what_can_be_written(tmp_path):
    (tmp_path / "old").write_text("x")
    check_writable(tmp_path / "old")
    check_writable(tmp_path / "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["old"]


def test_what_cannot(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"there is no such folder$"):
        check_writable(tmp_path / "none" / "x")
    with pytest.raises(UsageError, match=r"it is a folder$"):
        check_writable(tmp_path)
    # Whoever runs the tests may be allowed everything.
    monkeypatch.setattr(os, "access", lambda path, mode: not (path == tmp_path and mode == os.W_OK))
    with pytest.raises(UsageError, match=r"permission denied$"):
        check_writable(tmp_path / "new")


def test_a_file_takes_the_place_of_files_alone(tmp_path):
    (tmp_path / "old").write_text("x")
    check_replaceable(tmp_path / "old", None, tmp_path / "gone", tmp_path)
    check_replaceable(tmp_path / "new")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises(UsageError, match=r"it is no regular file$"):
            check_replaceable(tmp_path / name)
    with pytest.raises(UsageError, match=r"it is a folder$"):
        check_replaceable(tmp_path)


def test_it_takes_not_the_place_of_what_is_read(tmp_path):
    (tmp_path / "old").write_text("x")
    (tmp_path / "again").hardlink_to(tmp_path / "old")
    with pytest.raises(UsageError, match=r"old: it is what is to be read$"):
        check_replaceable(tmp_path / "old", None, tmp_path / "again")


def test_a_folder_that_takes_no_new_file(tmp_path, monkeypatch):
    (tmp_path / "old").write_text("x")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    check_writable(tmp_path / "old")
    with pytest.raises(UsageError, match=r"no file can be made in its folder$"):
        check_replaceable(tmp_path / "old")
