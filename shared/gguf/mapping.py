"""Opening a path that is supposed to be a GGUF file, and saying plainly what it is instead.

Owns the memory map and the wording of refusals. Knows nothing of the file's contents but its first bytes.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from shared.errors import ModelFileError

MINIMUM_BYTES = 32

_FETCH = "download it again with `ds4 pull`"
# What people hand over by mistake, by its first bytes.
_IMPOSTORS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", f"is a Git LFS pointer, not the model: run `git lfs pull`, or {_FETCH}"),
    (b"PK\x03\x04", "is a zip archive or a PyTorch checkpoint, not a GGUF file"),
    (b"\x1f\x8b", "is compressed with gzip: unpack it first"),
    (b"<!", f"is a web page, not a GGUF file: {_FETCH}"),
    (b"<html", f"is a web page, not a GGUF file: {_FETCH}"),
    (b"lmgg", "is in the old GGML format: only GGUF version 3 is read"),
    (b"tjgg", "is in the old GGJT format: only GGUF version 3 is read"),
    (b"FUGG", "is a big-endian GGUF file: only little-endian ones are read"),
)


def shown(text: str) -> str:
    """A name from a file, quoted, on one line and of bounded length."""
    quoted = ascii(text) if not text.isprintable() else f"'{text}'"
    return quoted if len(quoted) <= 100 else f"{quoted[:96]}...'"


def refusal(path: Path, problems: Sequence[str]) -> ModelFileError:
    """The error for a file with these problems (at least one): one line, and the whole list behind it."""
    more = f" (and {len(problems) - 1} more problems)" if len(problems) > 2 else ""
    more = " (and 1 more problem)" if len(problems) == 2 else more
    return ModelFileError(f"cannot use the model file {shown(str(path))}: {problems[0]}{more}", problems)


def _unusable(reason: str) -> ModelFileError:
    return ModelFileError(reason, [reason])


def map_file(path: Path) -> mmap.mmap:
    """Map the whole file read-only. The first bytes are a GGUF magic and the size is at least 32.

    Raises ModelFileError with the reason and what to do about it.
    """
    try:
        return _map(path)
    except FileNotFoundError:
        raise _unusable(_missing(path)) from None
    except PermissionError:
        raise _unusable(f"cannot read {shown(str(path))}: permission denied") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _unusable(f"cannot read {shown(str(path))}: {reason}") from None


def _missing(path: Path) -> str:
    if os.path.lexists(f"{path}.part"):
        return (
            f"{shown(str(path))} is not downloaded completely (there is only the '.part' file): "
            "run the same `ds4 pull` again to resume"
        )
    return f"there is no model file {shown(str(path))}: check the path, or get one with `ds4 pull`"


def _map(path: Path) -> mmap.mmap:
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise _unusable(f"{shown(str(path))} is a directory: name the .gguf file in it")
    if not stat.S_ISREG(mode):
        raise _unusable(f"{shown(str(path))} is not a regular file: a model must be a file on disk")
    if path.suffix == ".part":
        raise _unusable(
            f"{shown(str(path))} is an unfinished download: run the same `ds4 pull` again to resume"
        )
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise _unusable(f"{shown(str(path))} is empty: {_FETCH}")
        _check_magic(path, file.read(MINIMUM_BYTES))
        if size < MINIMUM_BYTES:
            raise refusal(path, [f"the file ends after {size} bytes, inside the GGUF header"])
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _check_magic(path: Path, head: bytes) -> None:
    if head[:4] == b"GGUF":
        return
    for prefix, reason in _IMPOSTORS:
        if head.lower().startswith(prefix.lower()):
            raise refusal(path, [f"it {reason}"])
    if head[8:9] == b"{" and path.suffix == ".safetensors":
        raise refusal(path, ["it is a safetensors checkpoint: a GGUF file is needed"])
    raise refusal(path, [f"it is not a GGUF file (it starts with {head[:4].hex(' ')})"])
