"""`ds4 eval` on a real (pseudo) terminal: the board comes, obeys, and leaves the terminal as it was."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from tests.support.golden import GOLDEN
from tests.support.scripts import script_file, turn

PATIENCE = 120  # seconds until a test gives up; nothing waits that long unless it fails
LEAVES_THE_SCREEN = "\x1b[?1049l"
DS4 = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from apps.cli import main
sys.exit(main())
"""


class Terminal:
    """`ds4 eval` on a terminal of `columns` by 24; the first answer never ends, the second is right."""

    def __init__(self, folder, *arguments, columns=100):
        lines = [
            {"source": "own", "id": f"q{n}", "question": f"What is {n}?", "answer": f"{n}"} for n in (1, 2)
        ]
        (folder / "q.jsonl").write_text("\n".join(map(json.dumps, lines)))
        endless = turn(*["on and on "] * 2000, match="What is 1", piece_delay_s=0.01)
        script = script_file(folder, endless, turn("hm", "</think>", "Answer: 2", match="What is 2"))
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._modes = termios.tcgetattr(slave)
        options = ["eval", str(folder / "q.jsonl"), "--script", str(script), "--pause-ms", "0", *arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-c", DS4, *options],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=GOLDEN.parents[1],
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""},
        )
        os.close(slave)
        self.raw = ""

    def type(self, keys):
        os.write(self._master, keys.encode())

    def read_until(self, text):
        """Read on until `text` came, or to the end if it is None."""
        end = time.monotonic() + PATIENCE
        while text is None or text not in self.raw:
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"waited for {text!r}, saw {self.raw[-2000:]!r}"
            try:
                data = os.read(self._master, 65536)
            except OSError:
                data = b""
            if not data:
                assert text is None, f"ended before {text!r}: {self.raw[-2000:]!r}"
                break
            self.raw += data.decode("utf-8", "replace")

    def end(self):
        """The exit code and what was printed after the board; the terminal's modes are back."""
        self.read_until(None)
        code = self.process.wait(PATIENCE)
        assert termios.tcgetattr(self._master) == self._modes
        os.close(self._master)
        return code, self.raw.rpartition(LEAVES_THE_SCREEN)[2].replace("\r", "")


@pytest.fixture
def terminal(tmp_path):
    opened = []

    def open_terminal(*arguments, **size):
        opened.append(Terminal(tmp_path, *arguments, **size))
        return opened[-1]

    yield open_terminal
    for made in opened:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait()


def test_another_question_is_run_and_then_it_is_left(terminal):
    running = terminal()
    running.read_until("on and on")
    assert "THINK" in running.raw
    running.type("\x1b[B\r")
    running.read_until("PASSED")
    running.type("q")
    code, report = running.end()
    assert code == 0
    assert "passed 1/2, failed 0" in report
    assert "own/q2" in report


@pytest.mark.long
def test_ctrl_c_leaves_a_report_too(terminal):
    running = terminal()
    running.read_until("on and on")
    running.type("\x03")
    code, report = running.end()
    assert code == 130
    assert "STOPPED" in report
    assert report.splitlines()[-1].startswith("ds4: stopped")


@pytest.mark.long
def test_a_signal_leaves_the_terminal_as_it_was(terminal):
    running = terminal()
    running.read_until("on and on")
    running.process.send_signal(signal.SIGTERM)
    code, _ = running.end()
    assert code == 143
    assert LEAVES_THE_SCREEN in running.raw


@pytest.mark.long
@pytest.mark.parametrize(("arguments", "columns"), [(["--plain"], 100), ([], 80)])
def test_it_is_plain_where_the_board_is_not_wanted_or_has_no_room(terminal, arguments, columns):
    running = terminal("--case-sequence", "2", *arguments, columns=columns)
    code, _ = running.end()
    assert code == 0
    assert LEAVES_THE_SCREEN not in running.raw
    assert "--- 1/1 own/q2" in running.raw
