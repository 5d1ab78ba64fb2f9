"""docs/kv-cache.md says what the code does: offsets, words, sizes, flags."""

import io
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from apps.cli import load_command
from apps.flags_table import flags_page
from shared.kv.files.cache_file import TEXT_AT
from shared.kv.files.checksum import Checksum, Sidecar, read_sidecar, sidecar_path, write_sidecar
from shared.kv.files.header import Extension, Header, Reason
from shared.kv.files.payload_outline import PayloadWords, read_outline
from shared.kv.files.trailers import encode_tool_map
from shared.kv.payload import payload_size
from shared.kv.store.policy import StoreSettings
from shared.model.known_shapes import FLASH, PRO
from tests.support.cache_builder import zero_payload

PAGE = (Path(__file__).parents[4] / "docs" / "kv-cache.md").read_text(encoding="utf-8")
WORD_NAMES = tuple(field.name for field in fields(PayloadWords))
HEADER = Header(2, Reason.UNKNOWN, Extension(0), 0, 1, 0, 0, 0, 0, 0, 0)
ALL_ONES = {
    "quant_bits": 4,
    "reason": Reason.AGENT_SESSION,
    "extensions": Extension(0xFF),
    "model_id": 0xFF,
    "tokens": 0xFFFFFFFF,
    "hits": 0xFFFFFFFF,
    "context": 0xFFFFFFFF,
    "payload_abi": 0xFF,
    "created_at": 2**64 - 1,
    "last_used": 2**64 - 1,
    "payload_bytes": 2**64 - 1,
}


def table(first_cell, section):
    """The rows of the table of a section whose head begins with `first_cell`."""
    text = PAGE.partition(f"\n### {section}\n")[2] or PAGE.partition(f"\n## {section}\n")[2]
    rows = text[text.index(f"| {first_cell} |") :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows]


def header_rows():
    return {row[2]: (int(row[0]), int(row[1])) for row in table("offset", "Header")}


def test_the_header_table_has_every_field_and_no_gap():
    rows = header_rows()
    assert rows.keys() == {"magic", "version", "reserved", "text_bytes", *ALL_ONES}
    assert set(ALL_ONES) == set(Header.__slots__)
    at = 0
    for start, size in rows.values():
        assert start == at
        at += size
    assert at == TEXT_AT


@pytest.mark.parametrize("field", ALL_ONES)
def test_each_field_lies_where_the_table_says(field):
    plain, changed = HEADER.encode(), replace(HEADER, **{field: ALL_ONES[field]}).encode()
    touched = [index for index in range(len(plain)) if plain[index] != changed[index]]
    start, size = header_rows()[field]
    assert touched
    assert start <= touched[0]
    assert touched[-1] < start + size
    if size > 1:
        # All bits are set, so that the field's width shows too; tokens are 1 where nothing else is.
        assert len(touched) == size


def test_magic_and_version_lie_where_the_table_says():
    encoded, rows = HEADER.encode(), header_rows()
    start, size = rows["magic"]
    assert encoded[start : start + size] == b"KVC"
    assert encoded[rows["version"][0]] == 1


def test_every_reason_is_named():
    value = next(row[3] for row in table("offset", "Header") if row[2] == "reason")
    assert value == ", ".join(f"{reason.value} {reason.label}" for reason in Reason)


def test_the_tool_map_lies_where_the_table_says():
    section = encode_tool_map({"id": b"block"})
    rows = table("offset", "Trailers")
    assert [row[0] for row in rows] == ["0", "3", "4", "8", "12", "16", "16 + id"]
    assert section[0:4] == b"KTM\x01"
    assert [int.from_bytes(section[at : at + 4], "little") for at in (4, 8, 12)] == [1, 2, 5]
    assert section[16:18] == b"id"
    assert section[18:] == b"block"


def test_the_words_stand_in_this_order():
    rows = table("word", "Payload")
    assert tuple(row[1] for row in rows) == WORD_NAMES
    assert [int(row[0]) for row in rows] == list(range(13))
    content = zero_payload(200, context=1024)
    words = np.frombuffer(content[:52], "<u4").tolist()
    found = read_outline(io.BytesIO(content), len(content)).words
    assert [getattr(found, row[1]) for row in rows] == words


def test_the_sizes_are_the_codecs():
    for tokens, flash, pro in table("N", "Payload"):
        assert payload_size(FLASH, int(tokens), 32768) == int(flash)
        assert payload_size(PRO, int(tokens), 32768) == int(pro)


def test_a_checksum_looks_as_shown(tmp_path):
    path = tmp_path / "x.kv"
    write_sidecar(path, Sidecar(Checksum().hexdigest(), 1, 2, 3))
    assert read_sidecar(path) is not None
    shown = re.search(r"^    (xxh3-128 .*)$", PAGE, re.MULTILINE)
    assert shown is not None
    pattern = shown[1].replace("HEX", "[0-9a-f]{32}").replace("=N", "=[0-9]+")
    assert re.fullmatch(pattern + "\n", sidecar_path(path).read_text())


def test_every_flag_exists():
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    known = set(re.findall(r"`(--[a-z-]+)`", flags_page()))
    assert named - known == set()


def test_every_subcommand_is_described():
    described = set(re.findall(r"^\| `ds4 kv ([a-z-]+)", PAGE, re.MULTILINE))
    assert described == set(load_command("kv").commands)


def test_the_defaults_are_the_stores():
    settings = StoreSettings()
    assert f"at most {settings.cold_max_tokens} tokens" in PAGE
    assert f"Nothing shorter than {settings.min_tokens} tokens" in PAGE
    assert f"less {settings.trim_tokens} tokens, cut to a multiple of {settings.align_tokens}" in PAGE
    assert settings.budget_bytes is not None
    assert f"{settings.budget_bytes >> 20} MiB for each model" in PAGE
