"""The disk store of a server as a process: what a signal saves, and what a kill leaves."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.api_server import wait_for
from tests.support.conversations import Talk, script

_ROOT = Path(__file__).parents[2]
_LONG = "hello " * 40


class _Process:
    """A running `ds4 serve` with a store in `folder`."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        wait_for(lambda: "listening on" in self.log or popen.poll() is not None, 60)
        found = re.search(r"listening on (http://\S+)", self.log)
        assert found is not None, self.log
        self.url = found[1]

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def end(self, number: signal.Signals) -> int:
        self.popen.send_signal(number)
        code = self.popen.wait(60)
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self.popen.stderr is not None
        with self.popen.stderr as stream:
            for line in stream:
                self.lines.append(line)


def _command(folder: Path, document: dict[str, Any], *more: str) -> list[str]:
    path = folder.parent / "script.json"
    path.write_text(json.dumps(document))
    serve = [
        sys.executable,
        "-m",
        "apps.cli",
        "serve",
        "--script",
        str(path),
        "--port",
        "0",
        "--log-format",
        "text",
    ]
    return [*serve, "--kv-disk-dir", str(folder), "--kv-cache-min-tokens", "32", *more]


@contextmanager
def _running(folder: Path, document: dict[str, Any], *more: str) -> Iterator[_Process]:
    popen = subprocess.Popen(
        _command(folder, document, *more),
        cwd=_ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    process = None
    try:
        process = _Process(popen)
        yield process
    finally:
        if popen.poll() is None:
            popen.kill()
        popen.wait()
    assert "Traceback" not in process.log


def test_sigterm_saves_the_conversation_and_the_next_start_goes_on_with_it(tmp_path: Path) -> None:
    folder, talk = tmp_path / "kv", Talk(think=False)
    with _running(folder, script("one")) as process:
        first = talk.say(process.url, _LONG)
        assert process.end(signal.SIGTERM) == 0
    assert "reason=shutdown" in process.log
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.kv")} == {0o600}
    with _running(folder, script("two")) as process:
        assert talk.say(process.url, "next").cached == first.live
        assert process.end(signal.SIGTERM) == 0
    assert f"kv store {folder}: " in process.log


def test_a_kill_in_the_middle_of_a_write_loses_that_file_only(tmp_path: Path) -> None:
    folder, talk = tmp_path / "kv", Talk(think=False)
    with _running(folder, script("one")) as process:
        first = talk.say(process.url, _LONG)
        assert process.end(signal.SIGTERM) == 0
    before = sorted(folder.glob("*.kv"))
    # A state of 150 MB takes long enough to be caught at it.
    large = script("two", snapshot={"fixed_bytes": 150_000_000})
    with _running(folder, large) as process:
        talk.say(process.url, "next " * 40)
        process.popen.send_signal(signal.SIGTERM)
        wait_for(lambda: bool(list(folder.glob("*.tmp.*"))) or process.popen.poll() is not None, 60)
        assert process.end(signal.SIGKILL) == -signal.SIGKILL
    assert list(folder.glob("*.tmp.*"))
    assert sorted(folder.glob("*.kv")) == before
    talk.history = talk.history[:2]
    with _running(folder, script("three")) as process:
        assert not list(folder.glob("*.tmp.*"))
        assert talk.say(process.url, "and on").cached == first.live
        assert process.end(signal.SIGTERM) == 0


def test_a_folder_that_cannot_be_used_is_one_line_if_it_was_named(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("a file")
    done = subprocess.run(
        _command(tmp_path / "kv", script("x")), cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert str(tmp_path / "kv") in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
