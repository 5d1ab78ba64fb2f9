"""How sizes and names stand in the store's log lines. Must not know: where the lines go."""

from __future__ import annotations


def mebibytes(size: int) -> str:
    """A size in bytes, for people."""
    return f"{size / 2**20:.2f} MiB"


def reason_of(error: Exception, file_name: str) -> str:
    """What an error says, without the name of the file that the line names anyway."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error).removeprefix(f"{file_name}: ")
