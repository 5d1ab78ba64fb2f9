"""`ds4` on a pseudo terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time

from tests.support.golden import GOLDEN

PATIENCE = 30  # seconds until a test gives up; nothing waits that long unless it fails
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|[@-Z\\-_]|\][^\x07]*\x07)")


# Run in a new session: it makes the terminal its own first, so that a typed Ctrl+C reaches it.
DS4 = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from apps.cli import main
sys.exit(main())
"""


class Terminal:
    """`ds4` on a pseudo terminal: type, and wait for text."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        self._open = True
        self._modes = termios.tcgetattr(slave)
        command = [sys.executable, "-c", DS4, *arguments]
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=GOLDEN.parents[1],
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
        )
        os.close(slave)
        self.raw = ""
        self._seen = 0

    @property
    def modes_are_back(self) -> bool:
        return termios.tcgetattr(self._master) == self._modes

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, text: str) -> str:
        """Wait until `text` comes, and return what was shown up to it since the last wait."""
        end = time.monotonic() + PATIENCE
        while (found := self._shown.find(text, self._seen)) < 0:
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"waited for {text!r}, saw {self._shown[self._seen :]!r}"
            self.raw += os.read(self._master, 65536).decode("utf-8", "replace")
        shown = self._shown[self._seen : found + len(text)]
        self._seen = found + len(text)
        return shown

    @property
    def _shown(self) -> str:
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    def wait_for_end(self) -> int:
        end = time.monotonic() + PATIENCE
        while True:
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"waited for the end, saw {self._shown[self._seen :]!r}"
            try:
                data = os.read(self._master, 65536)
            except OSError:
                break
            if not data:
                break
            self.raw += data.decode("utf-8", "replace")
        return self.process.wait(PATIENCE)

    def hang_up(self) -> int:
        """Close the terminal's window, and wait for the program to end."""
        os.close(self._master)
        self._open = False
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self._open:
            os.close(self._master)
