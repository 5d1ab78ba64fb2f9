"""`ds4 kv show`: one cache file taken apart, section by section. Reads no tensor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from apps.kv.figures import hex_rows, one_line, size_text
from apps.kv.listing import file_record
from shared.errors import DamagedFile, PayloadError
from shared.kv.files.cache_file import TEXT_AT, CacheFile
from shared.kv.files.cache_reader import CacheReader, open_cache_file
from shared.kv.files.checksum import read_sidecar
from shared.kv.files.header import HEADER_BYTES, Extension
from shared.kv.files.payload_outline import LayerRows, PayloadOutline, read_outline
from shared.kv.files.trailers import encode_tool_map
from shared.kv.payload import HEADER_WORDS

_PREVIEW = 300
_MODELS = {0: "Flash", 1: "PRO"}


class Section(NamedTuple):
    """A run of bytes of the file."""

    name: str
    start: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Description:
    """Everything that `show` tells. `payload_problem` says why there is no outline of a payload."""

    file: CacheFile
    head: bytes
    text: bytes
    outline: PayloadOutline | None
    payload_problem: str | None
    tool_map: dict[str, bytes]
    declared_calls: int
    title: bytes | None
    trailer_problem: str | None
    sections: list[Section]
    sidecar: str


def describe_file(path: Path) -> Description:
    """Read `path` up to its tensors, and its trailers. Raises CacheFileError and OSError."""
    with path.open("rb") as raw, open_cache_file(path, any_abi=True) as reader:
        file = reader.file
        head = os.pread(raw.fileno(), TEXT_AT, 0)
        outline, payload_problem = _outline(reader)
        tool_map = reader.tool_map()
        try:
            title, trailer_problem = reader.title(), None
        except DamagedFile as error:
            title, trailer_problem = None, str(error)
        sections = [*_sections(file, outline), *_trailers(file, tool_map, title)]
        declared = reader.declared_calls()
        text = reader.text()
    return Description(
        file, head, text, outline, payload_problem, tool_map, declared, title, trailer_problem, sections,
        _sidecar(file),
    )  # fmt: skip


def description_record(found: Description) -> dict[str, Any]:
    """The description, ready for JSON."""
    outline = found.outline
    payload = None
    if outline is not None:
        payload = {
            "words": asdict(outline.words),
            "layers": [layer._asdict() for layer in outline.layers],
            "tensor_bytes": outline.tensor_bytes,
        }
    return file_record(found.file) | {
        "header_hex": found.head.hex(),
        "text_preview": one_line(found.text, _PREVIEW),
        "title": None if found.title is None else found.title.decode("utf-8", "replace"),
        "tool_calls": list(found.tool_map),
        "payload": payload,
        "payload_problem": found.payload_problem,
        "trailer_problem": found.trailer_problem,
        "sections": [section._asdict() for section in found.sections],
        "sidecar": found.sidecar,
    }


def description_lines(found: Description) -> Iterator[tuple[str, str]]:
    """The description for people: lines and their styles."""
    file, header = found.file, found.file.header
    model = _MODELS.get(header.model_id, f"unknown ({header.model_id})")
    yield str(file.path), "ds4.timing"
    yield f"model       {model}, {header.quant_bits}-bit experts, payload ABI {header.payload_abi}", ""
    yield f"reason      {header.reason.label}", ""
    yield f"key         {header.key_label}, {file.text_bytes} bytes of text", ""
    yield f"tokens      {header.tokens} of a context of {header.context}", ""
    yield f"hits        {header.hits}", ""
    yield f"created     {_time(header.created_at)}", ""
    yield f"last used   {_time(header.last_used)}", ""
    yield f"flags       {_flags(header.extensions)}", ""
    yield f"checksum    {found.sidecar}", ""
    if found.title is not None:
        yield f"title       {one_line(found.title, _PREVIEW)}", ""
    yield from _text_lines(found.text)
    yield "sections", "ds4.timing"
    for section in found.sections:
        yield f"  {section.start:>12}  {section.bytes:>12}  {section.name}", ""
    yield from _payload_lines(found)
    if found.declared_calls or found.tool_map:
        yield f"tool calls  {len(found.tool_map)} of {found.declared_calls} can be read", ""
        for call, block in found.tool_map.items():
            yield f"  {one_line(call, 60)}  {one_line(block, 80)}", ""
    if found.trailer_problem:
        yield f"trailer     {found.trailer_problem}", "ds4.error"
    yield "header and text length", "ds4.timing"
    for row in hex_rows(found.head):
        yield f"  {row}", ""


def _outline(reader: CacheReader) -> tuple[PayloadOutline | None, str | None]:
    payload_bytes = reader.file.header.payload_bytes
    if not payload_bytes:
        return None, None
    try:
        return read_outline(reader.payload(), payload_bytes), None
    except PayloadError as error:
        return None, str(error)


def _sections(file: CacheFile, outline: PayloadOutline | None) -> Iterator[Section]:
    yield Section("header", 0, HEADER_BYTES)
    yield Section("text length", HEADER_BYTES, TEXT_AT - HEADER_BYTES)
    yield Section("text", TEXT_AT, file.text_bytes)
    if outline is None:
        if file.header.payload_bytes:
            yield Section("payload", file.payload_at, file.header.payload_bytes)
        return
    words, at = outline.words, file.payload_at
    for name, count in (
        ("payload: words", HEADER_WORDS),
        ("payload: token ids", words.tokens),
        ("payload: logits", words.vocabulary),
        ("payload: compressed row counts", words.layers),
        ("payload: indexer row counts", words.layers),
    ):
        yield Section(name, at, 4 * count)
        at += 4 * count
    yield Section("payload: tensors", at, outline.tensor_bytes)


def _trailers(file: CacheFile, tool_map: dict[str, bytes], title: bytes | None) -> Iterator[Section]:
    at = file.trailer_at
    for name, size in (
        ("tool map", len(encode_tool_map(tool_map))),
        ("title", 0 if title is None else 4 + len(title)),
    ):
        if size:
            yield Section(name, at, size)
            at += size
    if file.size > at:
        yield Section("unknown", at, file.size - at)


def _sidecar(file: CacheFile) -> str:
    sidecar = read_sidecar(file.path)
    if sidecar is None:
        return "none: changed tensor bytes would go unnoticed"
    return sidecar.digest if sidecar.covers(file) else "of an earlier file of this name: not used"


def _time(seconds: int) -> str:
    if not seconds:
        return "never"
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return f"{seconds} (no time that a calendar has)"


def _flags(extensions: Extension) -> str:
    names = [bit.name.lower().replace("_", "-") for bit in Extension if extensions & bit and bit.name]
    unknown = int(extensions) & ~sum(Extension)
    return ", ".join(names + ([f"unknown {unknown:#04x}"] if unknown else [])) or "none"


def _text_lines(text: bytes) -> Iterator[tuple[str, str]]:
    yield f"text        {one_line(text, _PREVIEW)}", ""
    if len(text) > _PREVIEW:
        yield f"text ends   {one_line(text[-_PREVIEW:], _PREVIEW)}", ""


def _payload_lines(found: Description) -> Iterator[tuple[str, str]]:
    if found.payload_problem:
        yield f"payload     {found.payload_problem}", "ds4.error"
    elif found.outline is None:
        yield "payload     none: a stripped session, its text is evaluated anew", ""
    else:
        yield f"payload     {size_text(found.file.header.payload_bytes)}", "ds4.timing"
        for name, value in asdict(found.outline.words).items():
            shown = f"{value:#010x}" if name == "magic" else str(value)
            yield f"  {name.replace('_', ' '):<22}{shown}", ""
        yield from _layer_lines(found.outline)


def _layer_lines(outline: PayloadOutline) -> Iterator[tuple[str, str]]:
    """Layers that are alike share a line."""
    alike: dict[LayerRows, list[str]] = {}
    for index, layer in enumerate(outline.layers):
        alike.setdefault(layer, []).append(str(index))
    for rows_of, layers in alike.items():
        kind = "ratio not told by so few tokens" if rows_of.ratio is None else f"ratio {rows_of.ratio}"
        rows = f"{rows_of.compressed_rows} compressed and {rows_of.index_rows} indexer rows"
        yield f"  {kind}: {rows} in layers {', '.join(layers)}", ""
