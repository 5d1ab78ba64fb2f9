"""The disk store of a server as a process: what a signal saves, and what a kill leaves."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.api_server import wait_for
from tests.support.conversations import Talk, script
from tests.support.serve_process import ROOT, ServeProcess, running, serve_arguments

_LONG = "hello " * 40
_LONGEST_END = 60  # seconds


def _command(folder: Path, document: dict[str, Any]) -> list[str]:
    store = ("--kv-disk-dir", str(folder), "--kv-cache-min-tokens", "32")
    return serve_arguments(folder.parent, document, "--port", "0", *store)


@contextmanager
def _running(folder: Path, document: dict[str, Any]) -> Iterator[ServeProcess]:
    with running(_command(folder, document)) as process:
        yield process
    assert "Traceback" not in process.stderr


def test_sigterm_saves_the_conversation_and_the_next_start_goes_on_with_it(tmp_path: Path) -> None:
    folder, talk = tmp_path / "kv", Talk(think=False)
    with _running(folder, script("one")) as process:
        first = talk.say(process.url, _LONG)
        assert process.end(signal.SIGTERM, _LONGEST_END) == 0
    assert "reason=shutdown" in process.stderr
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.kv")} == {0o600}
    with _running(folder, script("two")) as process:
        assert talk.say(process.url, "next").cached == first.live
        assert process.end(signal.SIGTERM, _LONGEST_END) == 0
    assert f"kv store {folder}: " in process.stderr


def test_a_kill_in_the_middle_of_a_write_loses_that_file_only(tmp_path: Path) -> None:
    folder, talk = tmp_path / "kv", Talk(think=False)
    with _running(folder, script("one")) as process:
        first = talk.say(process.url, _LONG)
        assert process.end(signal.SIGTERM, _LONGEST_END) == 0
    before = sorted(folder.glob("*.kv"))
    # A state of 150 MB takes long enough to be caught at it.
    large = script("two", snapshot={"fixed_bytes": 150_000_000})
    with _running(folder, large) as process:
        talk.say(process.url, "next " * 40)
        process.popen.send_signal(signal.SIGTERM)
        wait_for(lambda: bool(list(folder.glob("*.tmp.*"))) or process.popen.poll() is not None, 60)
        assert process.end(signal.SIGKILL, _LONGEST_END) == -signal.SIGKILL
    assert list(folder.glob("*.tmp.*"))
    assert sorted(folder.glob("*.kv")) == before
    talk.history = talk.history[:2]
    with _running(folder, script("three")) as process:
        assert not list(folder.glob("*.tmp.*"))
        assert talk.say(process.url, "and on").cached == first.live
        assert process.end(signal.SIGTERM, _LONGEST_END) == 0


def test_a_folder_that_cannot_be_used_is_one_line_if_it_was_named(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("a file")
    done = subprocess.run(
        _command(tmp_path / "kv", script("x")), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert str(tmp_path / "kv") in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
