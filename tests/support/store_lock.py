"""A folder's lock as a live store holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held_by(folder: Path, pid: int = 4711) -> Iterator[None]:
    """Hold the lock of `folder`, through a file of its own, with `pid` in it."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, f"{pid}\n".encode(), 0)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)
