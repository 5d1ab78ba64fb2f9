"""`ds4 kv ls`: what a folder holds, one row a file. Reads headers, and the end of each key text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from apps.kv.figures import age_text, one_line, size_text
from apps.kv.places import Place
from shared.errors import CacheFileError, ForeignFile
from shared.kv.files.cache_file import CacheFile
from shared.kv.files.cache_reader import open_cache_file
from shared.kv.store.quarantine import FOLDER as QUARANTINE

_TEXT_END_BYTES = 400


@dataclass(frozen=True, slots=True)
class Row:
    """One usable file, and what tells it apart: its title, or the end of its key text."""

    file: CacheFile
    title: str | None
    text_end: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """A file that no session will load, and why; `damaged` if it ever was one of ours."""

    path: Path
    why: str
    damaged: bool


@dataclass(slots=True)
class Listing:
    """A folder; rows by last use, newest first. `bad_files` were set aside as damaged."""

    place: Place
    rows: list[Row] = field(default_factory=list)
    unusable: list[Unusable] = field(default_factory=list)
    bad_files: int = 0

    @property
    def bytes(self) -> int:
        """Size of the usable files."""
        return sum(row.file.size for row in self.rows)


def list_place(place: Place) -> Listing:
    """Read the headers of everything in `place`. Raises OSError when the folder cannot be read."""
    listing = Listing(place)
    for path in place.files():
        try:
            listing.rows.append(_row(path))
        except FileNotFoundError:
            continue
        except CacheFileError as error:
            listing.unusable.append(Unusable(path, str(error), not isinstance(error, ForeignFile)))
        except OSError as error:
            listing.unusable.append(Unusable(path, f"{path.name}: {error.strerror}", False))
    listing.rows.sort(key=lambda row: (-row.file.header.used_at, row.file.name))
    bad = place.folder / QUARANTINE
    listing.bad_files = len(list(Place(bad, place.kind).files())) if bad.is_dir() else 0
    return listing


def _row(path: Path) -> Row:
    with path.open("rb") as content, open_cache_file(path, any_abi=True) as reader:
        file, title = reader.file, reader.title()
        length = min(file.text_bytes, _TEXT_END_BYTES)
        text_end = os.pread(content.fileno(), length, file.payload_at - length)
    shown = None if title is None else one_line(title, _TEXT_END_BYTES)
    return Row(file, shown, one_line(text_end, _TEXT_END_BYTES))


def file_record(file: CacheFile) -> dict[str, Any]:
    """The header and sizes of a file, ready for JSON. Times are Unix seconds."""
    header = file.header
    fields = asdict(header) | {"reason": header.reason.label, "extensions": int(header.extensions)}
    return {
        "path": str(file.path),
        "key": header.key_label,
        "size": file.size,
        "text_bytes": file.text_bytes,
        **fields,
    }


def listing_record(listing: Listing) -> dict[str, Any]:
    """The listing, ready for JSON."""
    return {
        "folder": str(listing.place.folder),
        "kind": listing.place.kind,
        "bytes": listing.bytes,
        "bad_files": listing.bad_files,
        "files": [
            file_record(row.file) | {"title": row.title, "text_end": row.text_end} for row in listing.rows
        ],
        "unusable": [
            {"path": str(entry.path), "why": entry.why, "damaged": entry.damaged}
            for entry in listing.unusable
        ],
    }


def listing_lines(listing: Listing, now: float, width: int) -> Iterator[tuple[str, str]]:
    """The listing for people: lines of about `width` columns and their styles."""
    count = len(listing.rows)
    files = "1 file" if count == 1 else f"{count} files"
    yield f"{listing.place.folder}  ({listing.place.kind}: {files}, {size_text(listing.bytes)})", "ds4.timing"
    if listing.rows:
        head = ("key", "tokens", "reason", "size", "hits", "last use", "text")
        table = [head, *(_cells(row, now) for row in listing.rows)]
        widths = [max(len(row[column]) for row in table) for column in range(6)]
        for row in table:
            cells = [
                f"{cell:>{cell_width}}" if column in (1, 3, 4) else f"{cell:<{cell_width}}"
                for column, (cell, cell_width) in enumerate(zip(row, widths, strict=False))
            ]
            start = "  ".join(cells)
            yield (
                f"  {start}  {_shortened(row[6], width - len(start) - 4)}",
                "ds4.muted" if row is head else "",
            )
    for entry in listing.unusable:
        yield (
            f"  {'damaged' if entry.damaged else 'foreign'}: {entry.why}",
            ("ds4.error" if entry.damaged else "ds4.muted"),
        )
    if listing.bad_files:
        yield f"  {listing.bad_files} damaged set aside in {QUARANTINE}/", "ds4.warning"


def _cells(row: Row, now: float) -> tuple[str, ...]:
    header = row.file.header
    stripped = "" if header.payload_bytes else " (stripped)"
    return (
        row.file.name[:8],
        str(header.tokens),
        header.reason.label + stripped,
        size_text(row.file.size),
        str(header.hits),
        age_text(header.used_at, now),
        row.title if row.title is not None else f"…{row.text_end}",
    )


def _shortened(text: str, width: int) -> str:
    """A title keeps its start, a key text its end: that is what differs between the files of a folder."""
    width = max(20, width)
    if len(text) <= width:
        return text
    return f"…{text[1 - width :]}" if text.startswith("…") else f"{text[: width - 1]}…"
