"""Where damaged cache files go: out of the way, but still there for whoever wants to know why.

Owns `bad/` and its limits. Must not know: what makes a file bad.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from shared.kv.files.checksum import SUFFIX as SIDECAR_SUFFIX
from shared.kv.files.checksum import sidecar_path

FOLDER: Final = "bad"
MOST_FILES: Final = 8


def put_away(path: Path, budget_bytes: int | None) -> bool:
    """Move a cache file and its checksum into `bad/` beside it; False if it cannot be moved, or is gone.

    `bad/` keeps the latest 8 files, and of them no more than an eighth of `budget_bytes`; but always the
    last one.
    """
    folder = path.parent / FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        os.replace(path, folder / path.name)
        # The order of arrival is what the limits go by.
        os.utime(folder / path.name)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        os.replace(sidecar_path(path), sidecar_path(folder / path.name))
    # Somebody else may empty it meanwhile.
    with contextlib.suppress(OSError):
        _trim(folder, path.name, None if budget_bytes is None else budget_bytes // 8)
    return True


def _trim(folder: Path, last: str, most_bytes: int | None) -> None:
    with os.scandir(folder) as entries:
        files = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries if entry.is_file()]
    found = {name: status for name, status in files if not name.endswith(SIDECAR_SUFFIX)}
    newest_first = sorted(found, key=lambda name: (name == last, found[name].st_mtime_ns), reverse=True)
    total = 0
    for place, name in enumerate(newest_first):
        total += found[name].st_size
        if place and (place >= MOST_FILES or (most_bytes is not None and total > most_bytes)):
            for gone in (folder / name, sidecar_path(folder / name)):
                with contextlib.suppress(OSError):
                    gone.unlink()
