"""What dead writers leave in a directory of cache files. Spec: kv §3, §11.

Owns which names are temporary and when they are stale. Must not know: what the files hold.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

HOUR: Final = 3600
DAY: Final = 24 * HOUR

# Ours and the C server's end in a process id, its agent's in six random characters.
_TEMPORARY = re.compile(
    r"(?:[0-9a-fA-F]{40}\.kv(?:\.sum)?|sysprompt\.kv|\.model)\.tmp\.(?:(?P<pid>[0-9]{1,10})|[A-Za-z0-9]{6})"
)
_SIDECAR = re.compile(r"(?P<file>[0-9a-fA-F]{40}\.kv)\.sum")


def remove_leftovers(directory: Path, now: float) -> int:
    """Delete stale temporary files, and checksums whose file is gone. Returns how many.

    Only for the one who holds the directory and has not begun to write: a temporary file of this very process
    id is then one of a dead namesake. `now` in Unix seconds.
    """
    removed = 0
    for path in stale_leftovers(directory, now):
        with contextlib.suppress(OSError):
            path.unlink()
            removed += 1
    return removed


def stale_leftovers(directory: Path, now: float) -> list[Path]:
    """What `remove_leftovers` would delete. Raises OSError when the directory cannot be read."""
    with os.scandir(directory) as entries:
        names = {entry.name for entry in entries}
    stale = []
    for name in names:
        sidecar = _SIDECAR.fullmatch(name)
        temporary = _TEMPORARY.fullmatch(name)
        orphan = sidecar is not None and sidecar["file"] not in names
        if orphan or (temporary is not None and _is_stale(directory / name, temporary["pid"], now)):
            stale.append(directory / name)
    return stale


def _is_stale(path: Path, pid: str | None, now: float) -> bool:
    try:
        age = now - path.stat().st_mtime
    except OSError:
        return False
    if pid is None:
        return age > HOUR
    # Process ids come round again: no write takes a day.
    return int(pid) == os.getpid() or not _is_alive(int(pid)) or age > DAY


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return pid > 0
