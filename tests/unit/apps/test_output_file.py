"""An output that cannot be written is refused before the work."""

import os

import pytest

from apps.output_file import check_writable
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
