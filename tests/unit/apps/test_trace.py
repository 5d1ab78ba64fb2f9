"""The file of a trace: private, made anew, never in the way."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from apps.trace import Trace, TraceFile


def _silent(text: str) -> None:
    raise AssertionError(text)


def test_an_old_file_is_emptied_and_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("old and longer than what follows")
    path.chmod(0o644)
    with TraceFile(path, say=_silent) as file:
        assert path.read_text() == ""
        assert path.stat().st_mode & 0o777 == 0o600
        file.write("né\ud800w\n")
        assert path.read_text() == "né\\ud800w\n"
        assert file.open
    assert not file.open
    file.write("too late")
    assert path.read_text() == "né\\ud800w\n"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        TraceFile(tmp_path, say=_silent)


def test_a_disk_that_takes_a_part_only_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "trace"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with TraceFile(path, say=said.append) as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
        try:
            for _ in range(2):
                file.write("1234567")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not file.open
    assert path.read_text() == "1234567123"
    assert said == [f"the trace ends here: cannot write {path}: File too large"]


def test_events_are_lines_of_json_and_without_a_path_there_is_nothing(tmp_path: Path) -> None:
    with Trace(tmp_path / "trace", say=_silent) as trace:
        trace.write("turn", text="é\n")
        trace.write("end")
    lines = (tmp_path / "trace").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"event": "turn", "text": "é\n"}, {"event": "end"}]
    with Trace(None, say=_silent) as trace:
        trace.write("turn")
