"""`ds4 kv rm`: cache files go, and the checksums beside them. Everything is checked before anything goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from apps.kv.owner import folder_of, held
from shared.errors import CacheFileError
from shared.kv.files.cache_file import is_cache_name
from shared.kv.files.checksum import remove_sidecar
from shared.kv.files.header import MAGIC
from shared.kv.sessions.identity import SYSTEM_PROMPT_NAME


def remove_files(paths: Sequence[Path], *, force: bool) -> None:
    """Remove all of `paths`. Raises CacheFileError for what is no cache file, FolderInUse, OSError."""
    for path in paths:
        if not _is_ours(path):
            raise CacheFileError(f"{path} is no cache file: nothing was removed")
    with held(map(folder_of, paths), force=force):
        for path in paths:
            path.unlink(missing_ok=True)
            remove_sidecar(path)


def _is_ours(path: Path) -> bool:
    """By name, however damaged; or by its first bytes, whatever its name."""
    if is_cache_name(path.name) or path.name == SYSTEM_PROMPT_NAME:
        return True
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC
