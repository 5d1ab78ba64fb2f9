"""`ds4 serve` with a script as a process of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class ServeProcess:
    """A running `ds4 serve`; `lines` collects its stderr."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.lines: list[str] = []
        self.url = ""

    def read_until(self, wanted: str) -> re.Match[str]:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.lines.append(line)
            if found := re.search(wanted, line):
                return found
        raise AssertionError("".join(self.lines))

    def end(self, number: signal.Signals, within: float = 20) -> int:
        """Send the signal and wait for the end, so many seconds at most."""
        self.popen.send_signal(number)
        _, rest = self.popen.communicate(timeout=within)
        self.lines += rest.splitlines(keepends=True)
        return self.popen.returncode

    @property
    def stderr(self) -> str:
        return "".join(self.lines)


def serve_arguments(tmp_path: Path, script: dict[str, Any], *more: str) -> list[str]:
    """A command line; it stores nothing unless `more` says where."""
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script))
    serve = [sys.executable, "-m", "apps.cli", "serve", "--backend", "scripted", "--script", str(path)]
    store = [] if any(word.startswith("--kv-disk-dir") for word in more) else ["--no-kv-disk"]
    return [*serve, *store, "--log-format", "text", *more]


@contextmanager
def running(arguments: list[str], listening: str = r"listening on (http://\S+)") -> Iterator[ServeProcess]:
    """The process from the line on in which it says where it listens."""
    popen = subprocess.Popen(
        arguments, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    process = ServeProcess(popen)
    try:
        process.url = process.read_until(listening)[1]
        yield process
    finally:
        if popen.poll() is None:
            popen.kill()
        popen.wait()
        if popen.stderr is not None:
            popen.stderr.close()
