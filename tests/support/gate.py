"""A gate that tells when somebody has come to it: what a test waits for instead of time."""

from __future__ import annotations

import threading


class Gate(threading.Event):
    """`reached` is set as soon as somebody waits for the gate to open."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.reached.set()
        return super().wait(timeout)
