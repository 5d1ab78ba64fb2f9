"""Single instance: only one process at a time holds a large model, or the machine starts to swap.

Spec: apps, shared conventions. DS4_LOCK_FILE moves the lock file.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from shared.errors import Ds4Error

LARGE_MODEL_BYTES = 10**9


class AlreadyRunning(Ds4Error):
    """Another process holds a large model."""


def lock_path() -> Path:
    """DS4_LOCK_FILE, else a file in the user's cache directory."""
    if chosen := os.environ.get("DS4_LOCK_FILE"):
        return Path(chosen)
    import platformdirs

    return platformdirs.user_cache_path("ds4") / "ds4.lock"


def hold_instance_lock(model_bytes: int, path: Path | None = None) -> int | None:
    """Take the lock for a model of `model_bytes`; smaller ones than LARGE_MODEL_BYTES need none.

    Returns the open descriptor, which holds the lock until it is closed or the process ends. Raises
    AlreadyRunning when another process has it.
    """
    if model_bytes < LARGE_MODEL_BYTES:
        return None
    path = path or lock_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise AlreadyRunning(
            f"another ds4 (process {owner}) holds a large model: stop it first, or set DS4_LOCK_FILE "
            "to another path if this machine has memory for two"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
