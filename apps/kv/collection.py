"""`ds4 kv gc`: what may go from a folder of saved states, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.kv.figures import size_text
from apps.kv.places import Place
from shared.errors import CacheFileError
from shared.kv.files.cache_file import is_cache_name, read_cache_file
from shared.kv.files.checksum import read_sidecar, remove_sidecar, sidecar_path
from shared.kv.store.catalog import Catalog
from shared.kv.store.leftovers import stale_leftovers
from shared.kv.store.lineage import Lineage
from shared.kv.store.policy import StoreSettings
from shared.kv.store.quarantine import FOLDER as QUARANTINE
from shared.kv.store.room import Room


@dataclass(frozen=True, slots=True)
class Waste:
    """A file that may go, its size in bytes, and why."""

    path: Path
    bytes: int
    why: str


def find_waste(place: Place, budget_bytes: int, now: float) -> Iterator[Waste]:
    """All waste in `place`; `now` in Unix seconds. Raises OSError."""
    for path in sorted(stale_leftovers(place.folder, now)):
        yield from _waste(path, "left behind by a writer that is gone")
    bad = place.folder / QUARANTINE
    for path in sorted(bad.iterdir()) if bad.is_dir() else ():
        yield from _waste(path, "damaged and set aside")
    for path in place.files():
        if _has_stale_checksum(path):
            yield from _waste(sidecar_path(path), "checksum of an earlier file of this name")
    if place.kind != "chat sessions":
        yield from _over_budget(place.folder, budget_bytes, now)


def collect(waste: Iterable[Waste]) -> None:
    """Remove it all; a cache file takes the checksum beside it along. Raises OSError."""
    for entry in waste:
        entry.path.unlink(missing_ok=True)
        if is_cache_name(entry.path.name):
            remove_sidecar(entry.path)


def waste_record(waste: Sequence[Waste], *, dry_run: bool) -> dict[str, Any]:
    """What went, or would go, ready for JSON."""
    return {
        "dry_run": dry_run,
        "bytes": sum(entry.bytes for entry in waste),
        "files": [{"path": str(entry.path), "bytes": entry.bytes, "why": entry.why} for entry in waste],
    }


def waste_lines(waste: Sequence[Waste], *, dry_run: bool) -> Iterator[tuple[str, str]]:
    """What went, or would go, for people: lines and their styles."""
    for entry in waste:
        yield f"{entry.path}  {size_text(entry.bytes)}: {entry.why}", ""
    total = size_text(sum(entry.bytes for entry in waste))
    verb = "would be removed" if dry_run else "removed"
    count = "1 file" if len(waste) == 1 else f"{len(waste)} files"
    yield (f"{count}, {total} {verb}" if waste else "nothing to remove"), "ds4.ok"


def _waste(path: Path, why: str) -> Iterator[Waste]:
    if path.is_file() or path.is_symlink():
        yield Waste(path, path.lstat().st_size, why)


def _has_stale_checksum(path: Path) -> bool:
    if not sidecar_path(path).is_file():
        return False
    sidecar = read_sidecar(path)
    try:
        return sidecar is None or not sidecar.covers(read_cache_file(path))
    except (CacheFileError, FileNotFoundError):
        return False


def _over_budget(folder: Path, budget_bytes: int, now: float) -> Iterator[Waste]:
    """What a store with this budget would evict when it opens the folder."""
    catalog = Catalog(folder)
    catalog.refresh()
    room = Room(StoreSettings(budget_bytes=budget_bytes), Lineage())
    for name in room.plan(catalog.files, None, now).names:
        file = catalog.get(name)
        if file is not None:
            yield Waste(file.path, file.size, f"over the budget of {size_text(budget_bytes)}")
