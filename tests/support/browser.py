"""A page in headless Chromium, driven over the browser's debugging pipe, without a driver of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
    "about:blank",
)

# The browser wants its pipe at the numbers 3 and 4.
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)


class Page:
    """One tab. `problems` are uncaught exceptions and what the browser itself complained about."""

    def __init__(self, reader: RawIOBase, writer: RawIOBase) -> None:
        self._reader = reader
        self._writer = writer
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        self.problems: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self._call(f"{domain}.enable")

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        reply = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 20.0) -> None:
        """Until the expression is truthy."""
        end = time.monotonic() + seconds
        while not self.evaluate(f"!!({expression})"):
            assert time.monotonic() < end, (
                expression,
                self.problems,
                self.evaluate("document.body.innerText"),
            )
            time.sleep(0.02)

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        while (reply := self._receive()).get("id") != self._number:
            self._note(reply)
        assert "error" not in reply, reply
        return reply["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            part = self._reader.read(65536)
            assert part, "the browser is gone"
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(event["params"]["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded":
            self.problems.append(str(event["params"]["entry"]["text"]))


@contextmanager
def browser_page(profile: Path) -> Iterator[Page]:
    """A fresh browser with an empty profile in the folder `profile`; gone when the block ends."""
    assert CHROMIUM is not None
    to_browser, our_write = os.pipe()
    our_read, from_browser = os.pipe()
    start = [sys.executable, "-c", _START, str(to_browser), str(from_browser)]
    process = subprocess.Popen(
        [*start, CHROMIUM, f"--user-data-dir={profile}", *_FLAGS],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"HOME": str(profile)},
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        with (
            os.fdopen(our_read, "rb", buffering=0) as reader,
            os.fdopen(our_write, "wb", buffering=0) as writer,
        ):
            yield Page(reader, writer)
    finally:
        process.terminate()
        process.wait(20)
