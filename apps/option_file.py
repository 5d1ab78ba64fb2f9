"""Reading a small file that an option names. Knows no option and nothing of what the file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from shared.errors import UsageError

_MOST_BYTES: Final = 1 << 20


def read_option_file(option: str, path: Path) -> bytes:
    """What is in the file that `option` names. Raises UsageError for one that cannot be read or is larger
    than 1 MiB."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror or error}") from None
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{option} {path}: larger than 1 MiB")
    return content
