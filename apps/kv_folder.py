"""Where saved states lie when nobody names a folder: one folder for each model, told by its fingerprint.

Prompt states of the server may be lost, so they are in the user's cache; conversations may not, so they are
among the user's data. Makes no folder and reads none. Spec: kv §13.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from shared.errors import UsageError

# Enough of the fingerprint to tell models apart, and short enough to read.
_DIGITS: Final = 16


def store_folder(fingerprint: str) -> Path:
    """The server's disk store for the model with this fingerprint (64 hex digits)."""
    import platformdirs

    return platformdirs.user_cache_path("ds4") / "kv" / fingerprint[:_DIGITS]


def sessions_folder(fingerprint: str) -> Path:
    """The conversations of `ds4 chat` with the model with this fingerprint (64 hex digits)."""
    import platformdirs

    return platformdirs.user_data_path("ds4") / "sessions" / fingerprint[:_DIGITS]


def disk_dir(word: str) -> Path:
    """The value of `--kv-disk-dir`. Raises UsageError: an empty word, as an unset variable of a shell leaves
    it, would mean the folder at hand."""
    if not word:
        raise UsageError("--kv-disk-dir needs the name of a folder: leave it out for the usual one")
    return Path(word)


def named_folder(path: Path) -> Path:
    """A folder that the user named, whose `~` no shell has replaced: in a variable, or behind a `=`.

    Raises UsageError.
    """
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise UsageError(f"{path}: {str(error).rstrip('.')}: name the folder without ~") from None


def agent_folder() -> Path:
    """Where the C engine's agent keeps its conversations, whatever the model. Spec: kv §10."""
    try:
        home = Path.home()
    except RuntimeError:  # no HOME and no entry for the user
        home = Path()
    return home / ".ds4" / "kvcache"
