"""The one exception of the simulator."""

from __future__ import annotations


class KernelError(RuntimeError):
    """A kernel does not compile, or did what a GPU does not forgive; the message says what and where."""
