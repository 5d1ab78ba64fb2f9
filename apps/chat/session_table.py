"""The lines of `/list`: one saved conversation each. Reads no file. Spec: kv §10."""

from __future__ import annotations

from collections.abc import Sequence

from shared.kv.sessions.identity import shown_title
from shared.kv.sessions.stored_session import StoredSession

# Columns that `shown_title` leaves for the rest of a line.
_SPARED_COLUMNS = 12
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def session_lines(
    sessions: Sequence[StoredSession], *, current: str | None, columns: int, now: float
) -> list[str]:
    """Id, title, age, tokens, MiB and what is special, aligned; `current` is the identity of the session in
    use, marked with an asterisk. `now` in Unix seconds."""
    if not sessions:
        return ["there are no saved sessions of this model yet"]
    figures = [_figures(stored, now) for stored in sessions]
    widths = [max(map(len, column)) for column in zip(*figures, strict=True)]
    lines = []
    for stored, row in zip(sessions, figures, strict=True):
        before = f"{'*' if stored.identity == current else ' '} {stored.short_id}"
        numbers = "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        # The title comes last: it is the only part of no fixed width.
        room = columns - len(before) - len(numbers) - 4
        lines.append(f"{before}  {numbers}  {shown_title(stored.title, room + _SPARED_COLUMNS)}")
    return lines


def age(seconds: float) -> str:
    """How long ago, in one unit."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "now"


def _figures(stored: StoredSession, now: float) -> tuple[str, ...]:
    header = stored.file.header
    notes = ["stripped"] * stored.stripped + ["read-only"] * (not stored.writable)
    return (
        age(now - header.used_at),
        f"{header.tokens} tokens",
        f"{stored.file.size / 2**20:.1f} MiB",
        ", ".join(notes),
    )
