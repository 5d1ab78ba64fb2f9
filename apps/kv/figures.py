"""Sizes, ages and bytes as people read them: always one line, and nothing that a terminal would obey."""

from __future__ import annotations

_STEPS = ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "min"))


def size_text(count: int) -> str:
    """`count` bytes in the unit that fits."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def age_text(then: int, now: float) -> str:
    """How long before `now` the Unix time `then` was; "never" for 0."""
    if not then:
        return "never"
    seconds = now - then
    if seconds < 0:
        return "in the future"
    for step, unit in _STEPS:
        if seconds >= step:
            return f"{int(seconds // step)} {unit} ago"
    return "just now"


def one_line(content: bytes | str, width: int) -> str:
    """`content` on one line of at most `width` characters: white space collapsed, the end cut off with dots,
    and everything that is no printable character replaced."""
    text = content if isinstance(content, str) else content.decode("utf-8", "replace")
    line = " ".join("".join(char if char.isprintable() or char.isspace() else "�" for char in text).split())
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"


def hex_rows(content: bytes) -> list[str]:
    """Sixteen bytes a row, in groups of four."""
    return [content[start : start + 16].hex(" ", -4) for start in range(0, len(content), 16)]
