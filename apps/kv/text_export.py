"""`ds4 kv export-text`: the key text of a cache file, byte for byte."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import Any

from shared.kv.files.cache_reader import open_cache_file


def read_text(path: Path) -> bytes:
    """The text of any file whose header can be read, a stripped or an older one too.

    Raises CacheFileError.
    """
    with open_cache_file(path, any_abi=True) as reader:
        return reader.text()


def write_text(text: bytes, output: Path | None) -> None:
    """Write to `output`, which only this user may read, or to stdout."""
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return
    with open(output, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)


def text_record(path: Path, text: bytes) -> dict[str, Any]:
    """The text, ready for JSON: as text where it is UTF-8, else in base64."""
    record: dict[str, Any] = {"path": str(path), "text_bytes": len(text)}
    try:
        return record | {"text": text.decode("utf-8")}
    except UnicodeDecodeError:
        return record | {"text_base64": base64.b64encode(text).decode("ascii")}
