"""What this process takes of the host's memory, and the most it took while something ran (Linux).

Must not know: what runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATUS = Path("/proc/self/status")
_PERIOD = 0.005  # seconds
# Mapped pages of files are the system's to take back; these are not.
_OWN = ("RssAnon", "RssShmem", "VmPin")


def resident() -> dict[str, int]:
    """Bytes that the process owns (`own`), and of mapped files (`file`), in memory now."""
    lines = dict(line.split(":", 1) for line in STATUS.read_text(encoding="ascii").splitlines())
    kib = {name: int(lines[name].split()[0]) for name in (*_OWN, "RssFile") if name in lines}
    return {"own": 1024 * sum(kib.get(name, 0) for name in _OWN), "file": 1024 * kib.get("RssFile", 0)}


@contextmanager
def most_resident() -> Iterator[dict[str, int]]:
    """Within it memory is looked at all the time; afterwards the most of each kind above what there was."""
    before, most = resident(), {"own": 0, "file": 0}
    stop = threading.Event()

    def look() -> None:
        for name, value in resident().items():
            most[name] = max(most[name], value - before[name])

    def watch() -> None:
        while not stop.wait(_PERIOD):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        stop.set()
        watcher.join()
        look()
